"""Run an asyncio program against a Kafka cluster in virtual time, every fault reproducible."""

from __future__ import annotations

from aiokafka.testing.simulation.errors import (
    BusyLoopError,
    NotSimulatedError,
    SimulationError,
    StuckError,
    VirtualTimeError,
)
from aiokafka.testing.simulation.loop import SimulatedLoop
from aiokafka.testing.simulation.network import Line, Network
from aiokafka.testing.simulation.run import Simulation, simulate

__all__ = [
    "BusyLoopError",
    "Line",
    "Network",
    "NotSimulatedError",
    "SimulatedLoop",
    "Simulation",
    "SimulationError",
    "StuckError",
    "VirtualTimeError",
    "simulate",
]
