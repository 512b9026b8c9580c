"""Names of clients and brokers for log lines, with the fields that log records get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Subject", "about"]


class Subject(str):
    """A name for log lines, such as "Consumer c of group g". `fields` has the parts of the name,
    such as `group_id`, which become attributes of log records."""

    fields: Mapping[str, object]

    def __new__(cls, text: str, **fields: object) -> Self:
        """Return a Subject with the text `text` and those `fields` that are not None."""
        made = super().__new__(cls, text)
        made.fields = {name: value for name, value in fields.items() if value is not None}
        return made


def about(subject: str) -> dict[str, object]:
    """Return the fields of a Subject for the argument `extra` of a logger; empty for a str."""
    return dict(subject.fields) if isinstance(subject, Subject) else {}
