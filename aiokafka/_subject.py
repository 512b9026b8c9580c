"""What lines of the log are about, as text and as fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Subject", "about"]


class Subject(str):
    """A text such as "Consumer c of group g", which has the same as fields."""

    fields: Mapping[str, object]

    def __new__(cls, text: str, **fields: object) -> Self:
        """Return `text` with these fields; those that are None are left out."""
        made = super().__new__(cls, text)
        made.fields = {name: value for name, value in fields.items() if value is not None}
        return made


def about(subject: str) -> dict[str, object]:
    """Return the fields of a line about `subject`, for `extra=`; none for a plain text."""
    return dict(subject.fields) if isinstance(subject, Subject) else {}
