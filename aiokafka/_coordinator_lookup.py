"""What is said to brokers to find coordinators, in every version of the request."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    KafkaProtocolError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.net.connector import is_address
from aiokafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.structs import BrokerMetadata

__all__ = ["coordinators_in", "lookup_of"]

_FIRST_WITH_KINDS = 1
_FIRST_OF_SEVERAL = 4


def lookup_of(version: int, kind: int, keys: Sequence[str]) -> FindCoordinatorRequest:
    """Return the request for the coordinators of these keys, of a kind (CoordinationType).

    Raises UnsupportedVersionError for more than the version has: several keys, or another kind
    than groups.
    """
    if version < _FIRST_WITH_KINDS and kind:
        raise UnsupportedVersionError("FindCoordinator: only groups before Kafka 0.11")
    request = FindCoordinatorRequest()
    if kind:
        request.key_type = kind
    if version >= _FIRST_OF_SEVERAL:
        request.coordinator_keys = list(keys)
    elif len(keys) == 1:
        request.key = keys[0]
    else:
        raise UnsupportedVersionError("FindCoordinator: several at once need Kafka 3.0 (KIP-699)")
    return request


def coordinators_in(
    response: FindCoordinatorResponse, names: dict[str, str]
) -> dict[str, BrokerMetadata | KafkaError]:
    """Return the coordinator of each key in `names`, or the error of that key.

    The names are what errors call the keys, such as "group 'a'".
    """
    if not response.coordinators and len(names) == 1:
        ((key, what),) = names.items()  # the older form
        return {key: _home(response, what)}
    found = {each.key: each for each in response.coordinators}
    if len(names) == len(response.coordinators) == 1:
        # Java does not look at the key either, which a gateway may leave out.
        found = dict.fromkeys(names, response.coordinators[0])
    return {
        key: _home(found[key], what) if key in found else _unnamed(what)
        for key, what in names.items()
    }


def _unnamed(what: str) -> KafkaError:
    return GroupCoordinatorNotAvailableError(f"{what}: the response does not name its coordinator")


def _home(found: Coordinator | FindCoordinatorResponse, what: str) -> BrokerMetadata | KafkaError:
    if found.error_code:
        reason = found.error_message or "its coordinator is not known"
        return for_code(found.error_code)(f"{what}: {reason}")
    if found.node_id < 0 or not is_address(found.host, found.port):
        place = f"node {found.node_id} at {found.host!r}, port {found.port}"
        return KafkaProtocolError(f"{what}: the response names as coordinator {place}")
    return BrokerMetadata(found.node_id, found.host, found.port)
