"""Options of admin clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka._config.client import ClientConfig, OptionalServers
from aiokafka._config.options import MISSING, option

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AdminConfig"]


class AdminConfig(ClientConfig):
    """Options of an admin client, which connects to brokers or to controllers."""

    bootstrap_controllers: tuple[tuple[str, int], ...] | None = option(
        OptionalServers(),
        "bootstrap_controllers",
        None,
        """Controllers to connect to instead of brokers (KIP-919, Kafka 3.7), for example while no
        broker runs. Excludes bootstrap_servers.""",
    )

    def __post_init__(self) -> None:
        if self.bootstrap_controllers is not None:
            object.__setattr__(self, "bootstrap_servers", self.bootstrap_controllers)
        super().__post_init__()

    @property
    def is_for_controllers(self) -> bool:
        """Whether the client connects to controllers, not to brokers (KIP-919)."""
        return self.bootstrap_controllers is not None

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Return the configuration from option keywords.

        Raises ValueError if both `bootstrap_servers` and `bootstrap_controllers` are given.
        """
        given = [options.get(f"bootstrap_{each}") for each in ("servers", "controllers")]
        if all(each is not None and each is not MISSING for each in given):
            raise ValueError("bootstrap_servers, bootstrap_controllers: give one of them, not both")
        return super().from_options(**options)
