"""What a consumer was made with, as properties of it."""

from __future__ import annotations

from aiokafka._config.consumer import ConsumerConfig

__all__ = ["ConsumerSettings"]


class ConsumerSettings:
    """The options that programs ask a consumer for."""

    _config: ConsumerConfig

    @property
    def group_id(self) -> str | None:
        """The group to commit offsets for; None without one."""
        return self._config.group_id

    @property
    def enable_auto_commit(self) -> bool:
        """Whether offsets are committed in the background."""
        return self._config.enable_auto_commit

    @property
    def isolation_level(self) -> str:
        """Which records of transactions are read, as the constructor was told."""
        return self._config.isolation_level

    # -- names that others read --------------------------------------------------------------------

    @property
    def _group_id(self) -> str | None:
        return self._config.group_id

    @property
    def _group_instance_id(self) -> str | None:
        return self._config.group_instance_id

    @property
    def _enable_auto_commit(self) -> bool:
        return self._config.enable_auto_commit

    @property
    def _max_poll_records(self) -> int | None:
        return self._config.max_poll_records

    @property
    def _client_rack(self) -> str | None:
        return self._config.client.client_rack
