"""Batches that `foreachBatch` writes."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.spark import batch_writer


class Writer:
    """Takes note of what Spark would be told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.write = self

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Writer:
            self.told.append((name, *arguments, *keywords.items()))
            return self

        return call


def test_batches_are_numbered() -> None:
    rows = Writer()
    batch_writer("app", {"topic": "t"})(rows, 7)
    assert rows.told == [
        ("format", "aiokafka"),
        ("options", ("topic", "t")),
        ("option", "txnAppId", "app"),
        ("option", "txnVersion", "7"),
        ("mode", "append"),
        ("save",),
    ]


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="app_id"):
        batch_writer("", {})
    with pytest.raises(ValueError, match="txnversion is set"):
        batch_writer("app", {"txnVersion": "1"})
