"""Messages for finding the coordinator of a group or a transactional id."""

from aiokafka.protocol.schema import I8, I16, I32, NStr, Request, Response, Str, Struct, field


class Coordinator(Struct):
    key: Str
    node_id: I32
    host: Str
    port: I32
    error_code: I16 = 0
    error_message: NStr


class FindCoordinatorResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = field("0-3", default=0)
    error_message: NStr = field("1-3", default="", ignorable=True)
    node_id: I32 = field("0-3", default=0)
    host: Str = field("0-3", default="")
    port: I32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=[])


class FindCoordinatorRequest(
    Request[FindCoordinatorResponse], api_key=10, versions="0-6", flexible="3+"
):
    """Find the coordinator of one key, or from version 4 on of several keys (KIP-699)."""

    key: Str = field("0-3", default="")
    key_type: I8 = field("1+", default=0)  # 0 group, 1 transaction, 2 share group
    coordinator_keys: list[Str] = field("4+", default=[])
