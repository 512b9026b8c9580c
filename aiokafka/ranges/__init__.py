"""Ranges of offsets, read to their ends as columns: for batch jobs.

`RangeReader` reads any number of partitions, each from a first offset up to an end offset. It
fetches records before the application requests them, within a memory limit, and returns record
sets, which are converted to columns without a Python object per record. A range ends at an offset,
not after a number of records: compaction, transaction markers and aborted records leave gaps.
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
