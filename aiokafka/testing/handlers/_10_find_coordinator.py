"""FindCoordinator: which broker coordinates a group or a transactional id."""

from __future__ import annotations

from aiokafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = FindCoordinatorRequest
_GROUP, _TRANSACTION = 0, 1
_INTERNAL_TOPICS = {_GROUP: "__consumer_offsets", _TRANSACTION: "__transaction_state"}


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Look the keys up."""
    keys = request.coordinator_keys if context.api_version >= 4 else [request.key]
    return _response(context, [_find(context, request.key_type, key) for key in keys])


def refuse(
    context: RequestContext, request: FindCoordinatorRequest, errno: int
) -> FindCoordinatorResponse:
    """Say no to every key."""
    keys = request.coordinator_keys if context.api_version >= 4 else [request.key]
    return _response(context, [_failed(key, errno, "refused") for key in keys])


def _find(context: RequestContext, kind: int, key: str) -> Coordinator:
    state = context.state
    if kind not in _INTERNAL_TOPICS:
        return _failed(key, codes.INVALID_REQUEST, f"unknown coordinator type {kind}")
    resource = "transactional_id" if kind == _TRANSACTION else "group"
    errno = context.services.acls.check_named(context, resource, key, "describe")
    if errno:
        return _failed(key, errno, "refused")
    # A broker that no controller has heard of is not alive either.
    if not state.live_nodes():
        return _failed(key, codes.COORDINATOR_NOT_AVAILABLE, "no broker is alive")
    topic = _INTERNAL_TOPICS[kind]
    if topic not in state.topics:
        state.create_topic(topic, 1, 1, config={"cleanup.policy": "compact"}, is_internal=True)
    node_id = state.coordinator(kind, key)
    node = state.nodes[node_id]
    return Coordinator(key=key, node_id=node_id, host=node.host, port=node.port, error_message=None)


def _failed(key: str, errno: int, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=errno, error_message=message
    )


def _response(context: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.api_version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
