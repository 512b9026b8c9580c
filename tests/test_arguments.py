"""The checks of arguments that all roles share: what they accept, and the texts of their errors."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import _arguments as arguments
from aiokafka.admin import ElectionType
from aiokafka.structs import TopicPartition

TP = TopicPartition("t", 0)


class Name(str, enum.Enum):
    ORDERS = "orders"


class Whole:
    """An integer of another library, such as NumPy."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value

    def __float__(self) -> float:
        return float(self._value)


ACCEPTED: list[tuple[Callable[[], object], object]] = [
    (lambda: arguments.as_int("n", ElectionType.UNCLEAN), 1),
    (lambda: arguments.as_int("n", Whole(3)), 3),
    (lambda: arguments.as_int("n", -3), -3),
    (lambda: arguments.as_int("n", 0, 0), 0),
    (lambda: arguments.as_number("n", Whole(3), "a number"), 3.0),
    (lambda: arguments.as_number("n", float("inf"), "a number"), float("inf")),
    (lambda: arguments.as_milliseconds("n", 0), 0.0),
    (lambda: arguments.as_flag("f", 1), True),
    (lambda: arguments.as_flag("f", False), False),
    (lambda: arguments.as_text("s", Name.ORDERS), "orders"),
    (lambda: arguments.as_text("s", ""), ""),
    (lambda: arguments.as_principal("p", "User:alice:x"), ("User", "alice:x")),
    (lambda: arguments.as_enum("e", 1, ElectionType), ElectionType.UNCLEAN),
    (lambda: arguments.as_enums("e", iter([1]), ElectionType), [ElectionType.UNCLEAN]),
    (lambda: arguments.as_tp("p", ("t", 0)), TP),
    (lambda: arguments.as_tp("p", TopicPartition("t", Whole(0))), TP),  # type: ignore[arg-type]
    (lambda: arguments.as_partitions("p", {TP: 1}), [TP]),
    (lambda: arguments.as_partitions("p", iter([TP, ("t", 0)])), [TP]),
    (lambda: arguments.as_names("n", (n for n in "aba")), ["a", "b"]),
    (lambda: arguments.as_names("n", iter("aba"), repeats=True), ["a", "b", "a"]),
    (lambda: arguments.as_ints("n", {2: None, 1: None}), [2, 1]),
    (lambda: arguments.by_partition("d", {("t", 0): 5}), [(TP, 5)]),
    (lambda: arguments.stop_limit(None), 10.0),
    (lambda: arguments.stop_limit(0), 0.0),
]


@pytest.mark.parametrize(("call", "result"), ACCEPTED)
def test_accepted_arguments(call: Callable[[], object], result: object) -> None:
    found = call()
    assert found == result
    assert type(found) is type(result) or isinstance(found, str)


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: arguments.as_int("n", "3"), TypeError, "n='3': must be an integer"),
    (lambda: arguments.as_int("n", True), TypeError, "n=True: must be an integer"),
    (lambda: arguments.as_int("n", None, 1), TypeError, "n=None: must be an integer of at least 1"),
    (lambda: arguments.as_int("n", 0, 1), ValueError, "n=0: must be an integer of at least 1"),
    (lambda: arguments.as_number("n", "1", "a number"), TypeError, "n='1': must be a number"),
    (
        lambda: arguments.as_number("n", float("nan"), "a number"),
        ValueError,
        "n=nan: must be a number",
    ),
    (
        lambda: arguments.as_milliseconds("n", -1),
        ValueError,
        "n=-1: must be a number of milliseconds, at least 0",
    ),
    (lambda: arguments.as_milliseconds("n", 10**400), ValueError, "n="),
    (lambda: arguments.as_flag("f", "yes"), TypeError, "f='yes': must be True or False"),
    (lambda: arguments.as_flag("f", None), TypeError, "f=None: must be True or False"),
    (lambda: arguments.as_text("s", b"x"), TypeError, "s: must be a str, not bytes"),
    (lambda: arguments.as_text("s", "", empty=False), ValueError, "s: must not be empty"),
    (
        lambda: arguments.as_principal("p", "alice"),
        ValueError,
        "p: 'alice' must be a principal such as 'User:alice'",
    ),
    (
        lambda: arguments.as_having("p", "secret", "send", "an AIOKafkaProducer"),
        TypeError,
        "p: must be an AIOKafkaProducer, not str",
    ),
    (
        lambda: arguments.as_having("p", Whole, "__index__", "a Whole"),
        TypeError,
        "p: must be a Whole, not the class Whole",
    ),
    (lambda: arguments.as_function("f", 3), TypeError, "f=3: must be a function"),
    (lambda: arguments.as_pattern("p", re.compile(b"x")), TypeError, "p=re.compile(b'x'): must be"),
    (
        lambda: arguments.as_instance("e", 3, enum.Enum),
        TypeError,
        "e: must be an Enum, not 3",
    ),
    (
        lambda: arguments.as_enum("e", 7, ElectionType),
        ValueError,
        "e: 7: must be one of PREFERRED, UNCLEAN",
    ),
    (
        lambda: arguments.as_tp("p", 3),
        TypeError,
        "p: must be TopicPartition instances, or a tuple of topic and partition, not 3",
    ),
    (
        lambda: arguments.as_tp("p", TopicPartition("t", "0")),  # type: ignore[arg-type]
        TypeError,
        "p: partition of 't'='0': must be an integer",
    ),
    (
        lambda: arguments.as_tp("p", TopicPartition(None, 0)),  # type: ignore[arg-type]
        TypeError,
        "p: topic: must be a str, not NoneType",
    ),
    (lambda: arguments.as_list("n", "ab"), TypeError, "n: must be several values, not one str"),
    (lambda: arguments.as_list("n", None), TypeError, "n: must be several values, not NoneType"),  # type: ignore[arg-type]
    (lambda: arguments.as_names("n", [[]]), TypeError, "n: must be names, not []"),  # type: ignore[list-item]
    (
        lambda: arguments.as_partitions("p", TP),
        TypeError,
        "p: must be several partitions, not one TopicPartition",
    ),
    (lambda: arguments.items_of("d", []), TypeError, "d: must be a dict, not list"),  # type: ignore[arg-type]
    (
        lambda: arguments.stop_limit(-1),
        ValueError,
        "timeout=-1: must be a number of seconds, at least 0, or None",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_refused_arguments(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(text)}") as caught:
        call()
    assert type(caught.value) is error


def test_an_error_of_an_iterator_is_not_replaced() -> None:
    def names() -> Any:
        yield "a"
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        arguments.as_names("n", names())
