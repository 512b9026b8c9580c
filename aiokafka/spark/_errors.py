"""Errors as short as Spark can show them: it prints every frame and every cause.

Those that an option can help name it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from aiokafka.ranges import DataLossError

__all__ = ["brief", "shortened"]

log = logging.getLogger("aiokafka.spark")

P = ParamSpec("P")
T = TypeVar("T")


def shortened(error: Exception) -> Exception:
    """Return `error` without its traceback, which is logged at DEBUG; to be raised `from None`."""
    log.debug("an error that is raised to Spark", exc_info=error)
    if isinstance(error, DataLossError):
        error.args = (f"{error.loss}; with failOnDataLoss=false a query skips what is gone",)
    return error.with_traceback(None)


def brief(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function that Spark calls: its errors are shown without our stack frames."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise shortened(error) from None

    return call
