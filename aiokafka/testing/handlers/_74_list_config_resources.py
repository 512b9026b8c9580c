"""ListConfigResources: what may have settings of its own (KIP-1000, KIP-1142)."""

from __future__ import annotations

from aiokafka.protocol.messages.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.configuring import BROKER, GROUP, LOGGER, METRICS, TOPIC
from aiokafka.testing.script import RequestContext

REQUEST = ListConfigResourcesRequest


def handle(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Name topics and brokers, and the groups and client metrics that have settings."""
    state = context.state
    brokers = [str(node) for node in state.live_nodes()]
    names: dict[int, list[str]] = {
        TOPIC: [name for name in state.topics if not context.check_topic(name)],
        BROKER: brokers,
        LOGGER: brokers,
        METRICS: [name for kind, name in state.other_configs if kind == METRICS],
        GROUP: [name for kind, name in state.other_configs if kind == GROUP],
    }
    wanted = request.resource_types or list(names)
    if context.api_version == 0:
        wanted = [METRICS]
    if not names.keys() >= set(wanted):
        return refuse(context, request, codes.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in names[kind]
        ]
    )


def refuse(
    context: RequestContext, request: ListConfigResourcesRequest, errno: int
) -> ListConfigResourcesResponse:
    """Say no."""
    return ListConfigResourcesResponse(error_code=errno, config_resources=[])
