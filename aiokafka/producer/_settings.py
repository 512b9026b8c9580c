"""What a producer was made with."""

from __future__ import annotations

from functools import cached_property

from aiokafka._config import ClientConfig
from aiokafka._config.as_given import with_options
from aiokafka._config.producer import ProducerConfig

__all__ = ["ProducerSettings"]


@with_options({"_given": ProducerConfig, "_given.client": ClientConfig})
class ProducerSettings:
    """The options that programs ask a producer for. A subclass of theirs may have attributes of
    these names: they can be set, without any effect here."""

    _given: ProducerConfig

    @cached_property
    def transactional_id(self) -> str | None:
        """The name of the producer across restarts; None without transactions."""
        return self._given.transactional_id
