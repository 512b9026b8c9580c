"""What the parts of a fake broker need to know of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokafka.testing.security import Session
    from aiokafka.testing.versions import BrokerProfile

__all__ = ["RequestFacts"]


class RequestFacts(Protocol):
    """What is known of a request and its client; the whole of it is in a `RequestContext`."""

    @property
    def api_key(self) -> int:
        """The API."""

    @property
    def api_version(self) -> int:
        """The version of the API."""

    @property
    def client_id(self) -> str | None:
        """The client's id, as the request names it."""

    @property
    def client_host(self) -> str:
        """The address of the client."""

    @property
    def received_at(self) -> float:
        """`loop.time()` when the request was complete."""

    @property
    def session(self) -> Session | None:
        """The login of the connection; None where brokers ask for no login."""

    @property
    def size(self) -> int:
        """Bytes of the request."""

    @property
    def profile(self) -> BrokerProfile:
        """The release that the broker plays."""
