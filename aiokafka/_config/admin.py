"""Options of admin clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka._config.client import ClientConfig, OptionalAddresses
from aiokafka._config.options import MISSING, option

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AdminConfig"]


class AdminConfig(ClientConfig):
    """Options of an admin client. An admin client connects to brokers or to controllers."""

    bootstrap_controllers: tuple[tuple[str, int], ...] | None = option(
        OptionalAddresses(),
        "bootstrap_controllers",
        None,
        "Controllers to ask in place of brokers (KIP-919, Kafka 3.7), also while no broker runs; "
        "give it instead of bootstrap_servers.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bootstrap_controllers is not None:
            object.__setattr__(self, "bootstrap_servers", self.bootstrap_controllers)

    @property
    def is_for_controllers(self) -> bool:
        """Whether the client connects to controllers, not to brokers (KIP-919)."""
        return self.bootstrap_controllers is not None

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Return the configuration from public keywords. Raises ValueError if both
        `bootstrap_servers` and `bootstrap_controllers` are given."""
        given = [options.get(f"bootstrap_{each}") for each in ("servers", "controllers")]
        if all(each is not None and each is not MISSING for each in given):
            raise ValueError("bootstrap_servers, bootstrap_controllers: give one of them, not both")
        return super().from_options(**options)
