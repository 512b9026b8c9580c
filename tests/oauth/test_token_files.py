"""Token files that are late, empty for a moment, or of a machine whose clock differs."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.oauth import FileTokenProvider
from aiokafka.testing.simulation import Simulation, simulate

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 10}


def token_until(expiry: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


@pytest.mark.parametrize("ago", [0, 5, 20])
async def test_clocks_may_differ_by_half_a_minute(tmp_path: Path, ago: float) -> None:
    """As brokers forgive: who wrote the file may be ahead of us."""
    path = tmp_path / "token"
    path.write_text(token_until(time.time() - ago))
    assert await FileTokenProvider(path, **QUICK).token() == path.read_text()


async def test_clocks_do_not_differ_by_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token_until(time.time() - 60))
    with pytest.raises(AuthenticationFailedError, match=r"expired 6[0-9] s ago"):
        await FileTokenProvider(path, **QUICK).token()


@pytest.mark.parametrize("content", ["", "\n", " \t\r\n "])
def test_a_file_without_a_token_is_looked_at_again(tmp_path: Path, content: str) -> None:
    """Something is about to write it."""
    path = tmp_path / "token"
    path.write_text(content)

    async def main(_: Simulation) -> None:
        with pytest.raises(KafkaConnectionError, match="is empty"):
            await FileTokenProvider(path, token_timeout_ms=20, **QUICK).token()

    simulate(main)
