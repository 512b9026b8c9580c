"""Virtual time: most tests here wait for several seconds."""

from __future__ import annotations

from tests.support.consumers import start as start
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
