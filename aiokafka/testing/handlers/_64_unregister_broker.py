"""UnregisterBroker: forget a broker."""

from __future__ import annotations

from aiokafka.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = UnregisterBrokerRequest


def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Have the controller know a broker no more, until it starts."""
    node = context.truth.nodes.get(request.broker_id)
    if node is None or node.is_forgotten:
        return refuse(context, request, codes.BROKER_ID_NOT_REGISTERED)
    context.truth.node_down(node.node_id)
    node.is_forgotten = True
    return UnregisterBrokerResponse(error_message=None)


def refuse(
    context: RequestContext, request: UnregisterBrokerRequest, errno: int
) -> UnregisterBrokerResponse:
    """Say no."""
    return UnregisterBrokerResponse(error_code=errno, error_message="refused")
