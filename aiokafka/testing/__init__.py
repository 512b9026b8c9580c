"""A fake Kafka cluster and network faults, inside the test process.

:class:`FakeCluster` is a small Kafka on real sockets, to which any client can connect and which
fails on demand; :class:`ServedCluster` runs a FakeCluster in a thread. :class:`FaultProxy` is a TCP
proxy that cuts, delays and stalls the connections to a fake or a real broker. The pytest plugin
provides the fixtures ``kafka_cluster`` and ``kafka_server``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.testing.acls import Acls
    from aiokafka.testing.actions import Action, Cut, Delay, Edit, Fail, Hold, RawBytes, Silence
    from aiokafka.testing.cluster import FakeCluster, ServedCluster
    from aiokafka.testing.controller import Controller
    from aiokafka.testing.faults import Faults
    from aiokafka.testing.groups import Coordinators, Groups
    from aiokafka.testing.log import PartitionLog
    from aiokafka.testing.proxy import FaultProxy
    from aiokafka.testing.quotas import Quotas
    from aiokafka.testing.replication import Replication
    from aiokafka.testing.schema_registry import FakeSchemaRegistry
    from aiokafka.testing.script import Interception, RequestContext, SeenRequest
    from aiokafka.testing.security import Security
    from aiokafka.testing.state import TopicRefusedError
    from aiokafka.testing.transactions import Transactions

__all__ = [
    "Acls",
    "Action",
    "Controller",
    "Coordinators",
    "Cut",
    "Delay",
    "Edit",
    "Fail",
    "FakeCluster",
    "FakeSchemaRegistry",
    "FaultProxy",
    "Faults",
    "Groups",
    "Hold",
    "Interception",
    "PartitionLog",
    "Quotas",
    "RawBytes",
    "Replication",
    "RequestContext",
    "Security",
    "SeenRequest",
    "ServedCluster",
    "Silence",
    "TopicRefusedError",
    "Transactions",
]

_HOMES = {
    "acls": ("Acls",),
    "cluster": ("FakeCluster", "ServedCluster"),
    "controller": ("Controller",),
    "faults": ("Faults",),
    "groups": ("Coordinators", "Groups"),
    "log": ("PartitionLog",),
    "proxy": ("FaultProxy",),
    "quotas": ("Quotas",),
    "replication": ("Replication",),
    "schema_registry": ("FakeSchemaRegistry",),
    "script": ("Interception", "RequestContext", "SeenRequest"),
    "security": ("Security",),
    "state": ("TopicRefusedError",),
    "transactions": ("Transactions",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the public class `name` on first use: pytest imports this package at every start, for
    the plugin, and importing all classes would slow the start down."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'actions')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return __all__
