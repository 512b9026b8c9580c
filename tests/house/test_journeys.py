"""Operations keep within their budgets of modules and moves."""

from __future__ import annotations

import pytest

from tests.house.journeys import measure, over_budget


@pytest.mark.real_time
async def test_journeys_are_within_their_budgets() -> None:
    assert not over_budget(await measure())
