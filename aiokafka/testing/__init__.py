"""A Kafka cluster and a bad network inside the test process.

:class:`FakeCluster` is a small Kafka on real sockets, which any client can talk to and which fails
on demand. :class:`FaultProxy` is a TCP proxy that cuts, delays and stalls, before a fake or a real
broker. The pytest plugin gives a ``kafka_cluster`` fixture.
"""

from __future__ import annotations

from aiokafka.testing.actions import Action, Cut, Delay, Edit, Fail, Hold, RawBytes, Silence
from aiokafka.testing.cluster import FakeCluster
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.proxy import FaultProxy
from aiokafka.testing.script import Interception, RequestContext, SeenRequest
from aiokafka.testing.state import TopicRefusedError

__all__ = [
    "Action",
    "Cut",
    "Delay",
    "Edit",
    "Fail",
    "FakeCluster",
    "FaultProxy",
    "Hold",
    "Interception",
    "PartitionLog",
    "RawBytes",
    "RequestContext",
    "SeenRequest",
    "Silence",
    "TopicRefusedError",
]
