"""What a consumer was made with, as properties of it."""

from __future__ import annotations

from functools import cached_property

from aiokafka._config.as_given import with_options
from aiokafka._config import ClientConfig
from aiokafka._config.consumer import ConsumerConfig

__all__ = ["ConsumerSettings"]


@with_options({"_given": ConsumerConfig, "_given.client": ClientConfig})
class ConsumerSettings:
    """The options that programs ask a consumer for. A subclass of theirs may have attributes of
    these names, as in aiokafka: they can be set, without any effect here."""

    _given: ConsumerConfig

    @cached_property
    def group_id(self) -> str | None:
        """The group to commit offsets for; None without one."""
        return self._given.group_id

    @cached_property
    def enable_auto_commit(self) -> bool:
        """Whether offsets are committed in the background."""
        return self._given.enable_auto_commit

    @cached_property
    def isolation_level(self) -> str:
        """Which records of transactions are read, as the constructor was told."""
        return self._given.isolation_level

    # -- names that others read --------------------------------------------------------------------

    @cached_property
    def _group_id(self) -> str | None:
        return self._given.group_id

    @cached_property
    def _group_instance_id(self) -> str | None:
        return self._given.group_instance_id

    @cached_property
    def _enable_auto_commit(self) -> bool:
        return self._given.enable_auto_commit

    @cached_property
    def _max_poll_records(self) -> int | None:
        return self._given.max_poll_records

    @cached_property
    def _client_rack(self) -> str | None:
        return self._given.client.client_rack
