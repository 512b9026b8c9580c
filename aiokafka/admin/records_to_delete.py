"""`RecordsToDelete`, the records to delete from the start of a partition."""

from __future__ import annotations

__all__ = ["RecordsToDelete"]


class RecordsToDelete:
    """All records before an offset; -1 deletes all records, up to the high watermark."""

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset

    def __repr__(self) -> str:
        return f"RecordsToDelete({self.before_offset})"
