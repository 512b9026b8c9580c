"""The transports of a simulated loop do what asyncio's own do on sockets."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.testing.simulation import Simulation
from tests.testing.transport_scenarios import SCENARIOS, Scenario, play


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_is_the_same_on_sockets_and_in_memory(scenario: Scenario) -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        on_sockets = loop.run_until_complete(play(scenario))
    finally:
        loop.close()
    for seed in range(5):
        assert Simulation(seed).run(play(scenario)) == on_sockets
