"""FindCoordinator requests and responses in all versions."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    KafkaProtocolError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.net.dialing import is_address
from aiokafka.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.structs import BrokerMetadata

__all__ = ["coordinators_in", "lookup_of"]

_FIRST_WITH_KINDS = 1
_FIRST_OF_SEVERAL = 4


def lookup_of(version: int, kind: int, keys: Sequence[str]) -> FindCoordinatorRequest:
    """Return the request for the coordinators of `keys`. `kind` is a CoordinationType.

    Raises UnsupportedVersionError if `version` does not support several keys, or transactions.
    """
    if version < _FIRST_WITH_KINDS and kind:
        raise UnsupportedVersionError("FindCoordinator: transactional ids need Kafka 0.11 or later")
    request = FindCoordinatorRequest()
    if kind:
        request.key_type = kind
    if version >= _FIRST_OF_SEVERAL:
        request.coordinator_keys = list(keys)
    elif len(keys) == 1:
        request.key = keys[0]
    else:
        raise UnsupportedVersionError("FindCoordinator: several keys need Kafka 3.0 (KIP-699)")
    return request


def coordinators_in(
    response: FindCoordinatorResponse, names: dict[str, str]
) -> dict[str, BrokerMetadata | KafkaError]:
    """Return the coordinator of each key in `names`, or the error of that key: an error code, a
    malformed address, or GroupCoordinatorNotAvailableError if the response lacks the key.

    The values of `names` are for error texts, such as "group 'a'".
    """
    if not response.coordinators and len(names) == 1:
        ((key, what),) = names.items()  # versions before 4 have no list of coordinators
        return {key: _coordinator_in(response, what)}
    found = {each.key: each for each in response.coordinators}
    if len(names) == len(response.coordinators) == 1:
        # Do not compare the key, which some gateways omit. The Java client does not compare it
        # either.
        found = dict.fromkeys(names, response.coordinators[0])
    lacks = "the response does not name its coordinator"
    return {
        key: _coordinator_in(found[key], what)
        if key in found
        else GroupCoordinatorNotAvailableError(f"{what}: {lacks}")
        for key, what in names.items()
    }


def _coordinator_in(
    found: Coordinator | FindCoordinatorResponse, what: str
) -> BrokerMetadata | KafkaError:
    if found.error_code:
        reason = found.error_message or "its coordinator is not known"
        return for_code(found.error_code)(f"{what}: {reason}")
    if found.node_id < 0 or not is_address(found.host, found.port):
        broker = f"node {found.node_id} at {found.host!r}, port {found.port}"
        return KafkaProtocolError(f"{what}: invalid coordinator in the response: {broker}")
    return BrokerMetadata(found.node_id, found.host, found.port)
