"""Run an asyncio program against a fake Kafka cluster in virtual time, reproducible by a seed."""

from __future__ import annotations

from aiokafka.testing.simulation.chaos import Chaos, Faults
from aiokafka.testing.simulation.loop import (
    BusyLoopError,
    NotSimulatedError,
    SimulatedLoop,
    SimulationError,
    StuckError,
    VirtualTimeError,
)
from aiokafka.testing.simulation.network import Line, Network
from aiokafka.testing.simulation.run import Simulation, simulate
from aiokafka.testing.simulation.timeline import Timeline

__all__ = [
    "BusyLoopError",
    "Chaos",
    "Faults",
    "Line",
    "Network",
    "NotSimulatedError",
    "SimulatedLoop",
    "Simulation",
    "SimulationError",
    "StuckError",
    "Timeline",
    "VirtualTimeError",
    "simulate",
]
