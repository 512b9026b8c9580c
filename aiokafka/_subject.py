"""Names of clients and brokers in log lines, with their parts as fields of log records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Subject", "about"]


class Subject(str):
    """A name in log lines, such as "Consumer c of group g", and its parts as fields of log
    records."""

    fields: Mapping[str, object]

    def __new__(cls, text: str, **fields: object) -> Self:
        """Return `text` with `fields`, except fields that are None."""
        made = super().__new__(cls, text)
        made.fields = {name: value for name, value in fields.items() if value is not None}
        return made


def about(subject: str) -> dict[str, object]:
    """Return the fields of `subject` for `extra=`; empty for a plain string."""
    return dict(subject.fields) if isinstance(subject, Subject) else {}
