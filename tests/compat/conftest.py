"""Tests of this folder run in virtual time."""

from __future__ import annotations

from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
