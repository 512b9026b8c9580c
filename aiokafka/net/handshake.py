"""What happens before the first request: ApiVersions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka._version import __version__
from aiokafka.errors import KafkaConnectionError, NoError, UnsupportedVersionError
from aiokafka.net.failures import handshake_failure
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.versions import BrokerVersions

if TYPE_CHECKING:
    from aiokafka.net.connection import BrokerConnection

__all__ = ["CLIENT_NAME", "Greeting", "ask_versions", "negotiate", "software_version"]

CLIENT_NAME = "aiokafka"

# The newest form, the form it is sent back to, and after an upgrade the newest again.
_MAX_QUESTIONS = 4

# ApiVersions tells finalized features since this version.
_FIRST_WITH_FEATURES = 3


class Greeting:
    """What one connection to a broker learns for the next one to the same address."""

    def __init__(self) -> None:
        self.newest = self.api_versions_version = ApiVersionsRequest.VERSIONS[1]
        """The version of ApiVersionsRequest that this broker understands; and up to which to ask,
        whatever it says, as a gateway before it may know less."""
        self.is_untested = True
        """Whether no ApiVersions request to this address has ever got a response."""
        self.is_kafka_0_9 = False
        """The broker responds to others but not to ApiVersions: do not ask again."""


def ask_versions(
    connection: BrokerConnection, greeting: Greeting, timeout: float
) -> asyncio.Future[ApiVersionsResponse]:
    """Send ApiVersions, with the client's name and version (KIP-511)."""
    request = ApiVersionsRequest(
        client_software_name=CLIENT_NAME, client_software_version=software_version()
    )
    return connection.send_nowait(request, greeting.api_versions_version, timeout)


async def negotiate(
    connection: BrokerConnection,
    greeting: Greeting,
    answer: asyncio.Future[ApiVersionsResponse],
    asked: int,
    timeout: float,
) -> BrokerVersions:
    """Return the broker's versions from its response to `ask_versions`.

    Asks again in an older version if necessary. `asked` is the version of the request: another
    connection may have changed the greeting since. A broker that does not know our version responds
    in version 0, with its own range or, before Kafka 2.4, with none. Raises RequestTimedOutError
    without a response, KafkaConnectionError.
    """
    for _ in range(_MAX_QUESTIONS):
        response = await answer
        greeting.is_untested = False
        if response.error_code == NoError.errno:
            # The broker may have been upgraded since it made us use an older version.
            best = min(_known_version(response), greeting.newest)
            greeting.api_versions_version = best
            if not asked < _FIRST_WITH_FEATURES <= best:
                return _versions(response)
            # Asked in a version without features, of a broker that has them: transactions of
            # version 2 would go unnoticed on this connection.
            asked, answer = best, ask_versions(connection, greeting, timeout)
            continue
        if response.error_code != UnsupportedVersionError.errno:
            raise handshake_failure(response.error_code, connection.peer, "ApiVersions")
        if asked == 0:
            raise UnsupportedVersionError(f"{connection.peer}: refused ApiVersions")
        asked = greeting.api_versions_version = min(_known_version(response), asked - 1)
        answer = ask_versions(connection, greeting, timeout)
    answer.cancel()
    raise KafkaConnectionError(f"{connection.peer}: contradicts itself about ApiVersions")


def software_version() -> str:
    """Return the version of this client as brokers take it."""
    # The broker accepts [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])? only, and closes the connection
    # otherwise.
    return __version__.replace("+", "-")


def _known_version(response: ApiVersionsResponse) -> int:
    for api in response.api_keys:
        if api.api_key == ApiVersionsRequest.API_KEY:
            return max(0, api.max_version)
    return 0


def _versions(response: ApiVersionsResponse) -> BrokerVersions:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    features = {}
    if response.finalized_features_epoch >= 0:
        features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
    return BrokerVersions(ranges, features)
