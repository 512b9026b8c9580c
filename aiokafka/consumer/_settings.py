"""What a consumer was made with, as properties of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from aiokafka._config.as_given import find_option
from aiokafka._config.consumer import ConsumerConfig

__all__ = ["ConsumerSettings"]


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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return ``_auto_offset_reset`` and the others as they were given."""
            config = vars(self).get("_given")
            return find_option(self, name, (config, config and config.client))
