"""Errors on their way to Spark, which shows every line of them."""

from __future__ import annotations

import logging
import traceback

import pytest

from aiokafka.errors import KafkaConnectionError
from aiokafka.spark._loop import with_short_errors


@with_short_errors
def ask(number: int) -> int:
    """What Spark calls."""
    return deeper(number)


def deeper(number: int) -> int:
    try:
        return 1 // number
    except ZeroDivisionError as error:
        raise KafkaConnectionError("no broker answers") from error


def test_an_error_is_its_sentence(caplog: pytest.LogCaptureFixture) -> None:
    assert ask(1) == 1
    caplog.set_level(logging.DEBUG, "aiokafka.spark")
    with pytest.raises(KafkaConnectionError) as caught:
        ask(0)
    text = "".join(traceback.format_exception(caught.value))
    assert "deeper" not in text and "ZeroDivisionError" not in text
    assert text.splitlines()[-1].endswith("no broker answers")
    assert len(text.splitlines()) < 10
    # Where it came from is in the log.
    assert "in deeper" in caplog.text
