"""Which modules are public, which only keep an old import path, and that all are on the map.

One rule: what docs/api.rst does not name and aiokafka did not have is private. A private module
begins with an underscore, or stands in a folder that begins with one, or in a folder without any
public module: what such a folder has for users, they import from the folder itself.
"""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from tests.house.imports import PACKAGE, module_graph, module_name, sources

# What users import by these paths: docs/api.rst names them, or aiokafka has them.
PUBLIC = {
    "abc",
    "admin.acls",
    "admin.brokers",
    "admin.client",
    "admin.config_resource",
    "admin.configs",
    "admin.enums",
    "admin.groups",
    "admin.new_partitions",
    "admin.new_topic",
    "admin.offsets",
    "admin.records",
    "admin.records_to_delete",
    "admin.results",
    "admin.topics",
    "admin.quotas",
    "admin.tokens",
    "admin.transactions",
    "admin.users",
    "client",
    "cluster",
    "consumer.consumer",
    "consumer.subscription_state",
    "coordinator.assignors.abstract",
    "coordinator.assignors.cooperative",
    "coordinator.assignors.range",
    "coordinator.assignors.roundrobin",
    "coordinator.assignors.sticky.sticky_assignor",
    "coordinator.protocol",
    "errors",
    "health",
    "helpers",
    "interceptors",
    "metrics.prometheus",
    "options",
    "partitioner",
    "producer.message_accumulator",
    "producer.producer",
    "structs",
}
# Paths of aiokafka behind which there is no code of ours. Their first line says so.
SHIMS = {
    "codec",
    "conn",
    "consumer.fetcher",
    "consumer.group_coordinator",
    "coordinator.assignors.sticky.partition_movements",
    "producer.sender",
    "producer.transaction_manager",
    "protocol.admin",
    "protocol.api",
    "protocol.commit",
    "protocol.coordination",
    "protocol.fetch",
    "protocol.group",
    "protocol.metadata",
    "protocol.offset",
    "protocol.produce",
    "protocol.transaction",
    "record.control_record",
    "record.default_records",
    "record.legacy_records",
    "record.memory_records",
    "record.util",
    "util",
}
OPENING = "Import path of aiokafka, kept as a shim: "
MODULES = {module_name(path): path for path in sources()}


def is_private(module: str) -> bool:
    """Say whether a name or its folder begins with an underscore, or the folder is not public."""
    folder = module.rpartition(".")[0]
    if any(part.startswith("_") for part in module.split(".")):
        return True
    return not any(public.rpartition(".")[0] == folder for public in PUBLIC)


def breaches() -> set[str]:
    """Return modules that are neither public, nor shims, nor private by name or place."""
    plain = {name for name, path in MODULES.items() if path.name != "__init__.py"}
    return {name for name in plain - PUBLIC - SHIMS if not is_private(name)}


def test_private_modules_are_recognised_by_name_or_place() -> None:
    assert not breaches(), "rename them to _x.py, or put them into a room of their own"


@pytest.mark.parametrize("module", sorted(PUBLIC | SHIMS))
def test_public_paths_exist(module: str) -> None:
    importlib.import_module(f"aiokafka.{module}")


def test_the_api_page_names_public_paths_only() -> None:
    page = (PACKAGE.parent / "docs" / "api.rst").read_text()
    named = set(re.findall(r"::\s+aiokafka\.([\w.]+)", page))
    for name in named:
        module = name if name in MODULES else name.rpartition(".")[0]
        is_room = module in MODULES and MODULES[module].name == "__init__.py"
        assert is_room or module in PUBLIC, f"{name}: {module} is not in PUBLIC"
        if name != module:
            found = importlib.import_module(f"aiokafka.{module}".rstrip("."))
            assert hasattr(found, name.rpartition(".")[2]), name


def test_every_module_is_on_the_map() -> None:
    page = (PACKAGE.parent / "docs" / "internals.rst").read_text()
    shown = {PACKAGE / room for room in re.findall(r"^\.\. room:: (\S+)$", page, re.MULTILINE)}
    assert {path.parent for path in MODULES.values()} == shown


def test_shims_say_what_they_are_in_their_first_line() -> None:
    first = {
        name: (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        for name, path in MODULES.items()
    }
    assert {name for name, line in first.items() if line.startswith(OPENING)} == SHIMS


def test_nothing_in_the_package_needs_a_shim() -> None:
    for name, needed in module_graph().items():
        # The package names them for type checkers, as users do.
        if name and name not in SHIMS:
            assert not needed & SHIMS, f"{name} imports {', '.join(needed & SHIMS)}"
