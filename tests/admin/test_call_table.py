"""The table of calls and the releases of Kafka that have them."""

from __future__ import annotations

import importlib
import pkgutil

from aiokafka.protocol import messages
from aiokafka.protocol.schema import Request
from docs._ext.admin_calls import OPERATIONS, operations


def api_names() -> dict[str, int]:
    for module in pkgutil.iter_modules(messages.__path__):
        importlib.import_module(f"{messages.__name__}.{module.name}")
    return {
        each.__name__.removesuffix("Request"): each.API_KEY for each in Request.__subclasses__()
    }


def test_the_table_names_apis_by_their_keys() -> None:
    known = api_names()
    for call, (api, key, _) in OPERATIONS.items():
        assert known[api] == key, call
    assert ("admin.topics.elect_leaders", "ElectLeaders", "2.2", "unclean: 2.4") in operations()
