"""What a producer was made with."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from aiokafka._config.as_given import find_option
from aiokafka._config.producer import ProducerConfig

__all__ = ["ProducerSettings"]


class ProducerSettings:
    """The options that programs ask a producer for. A subclass of theirs may have attributes of
    these names: they can be set, without any effect here."""

    _given: ProducerConfig

    @cached_property
    def transactional_id(self) -> str | None:
        """The name of the producer across restarts; None without transactions."""
        return self._given.transactional_id

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return ``_compression_type`` and the others as they were given."""
            config = vars(self).get("_given")
            return find_option(self, name, (config, config and config.client))
