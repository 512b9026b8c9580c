"""When a token says that it expires."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from aiokafka.oauth._tokens import expiry_of


def token(claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize("expiry", [1, 1_800_000_000, 1_800_000_000.5, 9_999_999_999])
def test_seconds_since_1970(expiry: float) -> None:
    assert expiry_of(token({"exp": expiry})) == expiry


@pytest.mark.parametrize("expiry", [None, True, "1800000000", 0, -5, 10**10, 1_800_000_000_000, []])
def test_what_is_no_time_in_seconds(expiry: Any) -> None:
    """Some say milliseconds: a token would live for ever if that was believed."""
    assert expiry_of(token({"exp": expiry})) is None


@pytest.mark.parametrize("text", ["", "opaque", "a.b", "a.b.c.d", "e30.!.x", "e30.W10.x", "e30..x"])
def test_what_is_no_token_of_that_kind(text: str) -> None:
    assert expiry_of(text) is None
    assert expiry_of(token([1])) is None
