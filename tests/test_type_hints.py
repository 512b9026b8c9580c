"""Hints of all public names can be evaluated, as containers that fill in arguments do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import typing
from collections.abc import Iterator
from types import GenericAlias, ModuleType
from typing import Any

import pytest

import aiokafka
from aiokafka.metrics import MetricsSnapshot

# Cython resolves the name when it compiles and leaves none in the module; the library alone
# calls the method.
COMPILED_AWAY = {"BatchBuilder.release", "ProducerBatch.part"}
# `typing` of Python 3.10 does not take `dataclasses.InitVar` for a type.
TAKES_INIT_VAR = sys.version_info >= (3, 11)
NEEDS_PYSPARK = {"spark"}
FURTHER = [
    "aiokafka.coordinator.assignors.abstract",
    "aiokafka.coordinator.assignors.cooperative",
    "aiokafka.coordinator.assignors.range",
    "aiokafka.coordinator.assignors.roundrobin",
    "aiokafka.coordinator.assignors.sticky.sticky_assignor",
    "aiokafka.metrics.prometheus",
    "aiokafka.producer.message_accumulator",
]
SPECIAL = ("__init__", "__new__", "__call__", "__aenter__", "__aexit__", "__aiter__", "__anext__")


def public_modules() -> list[str]:
    found = {each.name for each in pkgutil.iter_modules(aiokafka.__path__)} - NEEDS_PYSPARK
    own = [f"aiokafka.{name}" for name in sorted(found) if not name.startswith("_")]
    return ["aiokafka", *own, *FURTHER]


def functions(cls: type) -> Iterator[Any]:
    for name in dir(cls):
        if name.startswith("_") and name not in SPECIAL:
            continue
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            member = member.fget
        member = getattr(member, "__func__", member)
        # `typing.NamedTuple` writes a `__new__` that knows no module.
        if hasattr(member, "__globals__") and not member.__module__.startswith("namedtuple_"):
            yield member


def public_things(module: ModuleType) -> Iterator[Any]:
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        # Python 3.10 takes `dict[...]` for a class, too.
        if inspect.isclass(thing) and not isinstance(thing, GenericAlias):
            yield thing
            yield from functions(thing)
        elif inspect.isfunction(thing):
            yield thing


@pytest.mark.parametrize("name", public_modules())
def test_hints_of_all_public_names_can_be_evaluated(name: str) -> None:
    failed = []
    for thing in public_things(importlib.import_module(name)):
        try:
            typing.get_type_hints(thing)
        except (NameError, TypeError) as error:
            known = "InitVar" in str(error) and not TAKES_INIT_VAR
            if not known and thing.__qualname__ not in COMPILED_AWAY:
                failed.append(f"{thing.__module__}: {thing.__qualname__}: {error}")
    assert not failed


def test_hints_are_the_types_that_the_annotations_name() -> None:
    hints = typing.get_type_hints(aiokafka.AIOKafkaProducer.metrics)
    assert hints["return"] is MetricsSnapshot
