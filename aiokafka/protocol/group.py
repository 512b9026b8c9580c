"""Old import path; the homes are in `aiokafka.protocol.messages`."""

from aiokafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiokafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = [
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
]
