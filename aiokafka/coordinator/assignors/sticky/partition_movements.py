"""Import path of aiokafka, kept as a shim: which partitions an assignment moves."""

from aiokafka.coordinator.assignors._movements import PartitionMovements

__all__ = ["PartitionMovements"]
