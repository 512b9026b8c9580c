"""Scenarios with an aim. By chance alone, some of what clients do would hardly ever be met: it
takes certain options, certain faults at the same time, and the peace to see what came of them.

A new aim goes into a module of its family, and into `AIMS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.aims.base import Aim
from tests.simulation.aims.delivering import DELIVERING_AIMS
from tests.simulation.aims.hurrying import HURRYING_AIMS
from tests.simulation.aims.intercepting import INTERCEPTING_AIMS
from tests.simulation.aims.memory import MEMORY_AIMS
from tests.simulation.aims.reading import READING_AIMS
from tests.simulation.aims.remaking import REMAKING_AIMS
from tests.simulation.aims.transacting import TRANSACTING_AIMS
from tests.simulation.aims.working import WORKING_AIMS
from tests.simulation.scenario import Draft

AIMS: tuple[type[Aim], ...] = (
    *DELIVERING_AIMS,
    *TRANSACTING_AIMS,
    *READING_AIMS,
    *REMAKING_AIMS,
    *WORKING_AIMS,
    *MEMORY_AIMS,
    *INTERCEPTING_AIMS,
    *HURRYING_AIMS,
)
BY_NAME = {aim.name: aim for aim in AIMS}

# How many of the scenarios that may be anything have an aim.
_SHARE = 0.4


def draw_aim(draft: Draft, kinds: Sequence[str]) -> Aim | None:
    """The aim of a scenario, if it has one: one of those that `kinds` names, or of all."""
    wanted = [BY_NAME[name] for name in kinds if name in BY_NAME]
    if not wanted:
        if kinds or draft.random.random() >= _SHARE:
            return None
        wanted = list(AIMS)
    return draft.random.choice(wanted)(draft)
