"""Read ranges of offsets to their end, as columns: for jobs, not for applications that wait.

`RangeReader` reads any number of partitions, each from one offset up to another, ahead of its
caller and within a bound of memory. It returns record sets as brokers send them; they become
columns without a Python object per record. A range ends by *position*: compaction, markers of
transactions and aborted records leave gaps, so records are never counted.
"""

from __future__ import annotations

from aiokafka.ranges.reader import RangeReader
from aiokafka.ranges.state import (
    DataLoss,
    DataLossError,
    LossKind,
    OffsetSizes,
    PartitionRange,
    RecordSet,
    Rows,
)

__all__ = [
    "DataLoss",
    "DataLossError",
    "LossKind",
    "OffsetSizes",
    "PartitionRange",
    "RangeReader",
    "RecordSet",
    "Rows",
]
