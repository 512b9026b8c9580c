"""The table of calls and the releases of Kafka that have them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from aiokafka.admin import Brokers, Configs, Records, Topics
from aiokafka.admin._releases import OPERATIONS, operations
from aiokafka.protocol import messages
from aiokafka.protocol.schema import Request

ROOMS = {"brokers": Brokers, "configs": Configs, "records": Records, "topics": Topics}


def api_names() -> dict[str, int]:
    for module in pkgutil.iter_modules(messages.__path__):
        importlib.import_module(f"{messages.__name__}.{module.name}")
    return {
        each.__name__.removesuffix("Request"): each.API_KEY for each in Request.__subclasses__()
    }


@pytest.mark.parametrize("room", ROOMS)
def test_each_call_is_in_the_table(room: str) -> None:
    calls = [
        name
        for name, found in inspect.getmembers(ROOMS[room], inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]
    listed = [call.partition(".")[2] for call in OPERATIONS if call.startswith(f"{room}.")]
    assert sorted(calls) == sorted(listed)


def test_the_table_names_apis_by_their_keys() -> None:
    known = api_names()
    for call, (api, key, _) in OPERATIONS.items():
        assert known[api] == key, call
    assert ("admin.topics.elect_leaders", "ElectLeaders", "2.2", "unclean: 2.4") in operations()
