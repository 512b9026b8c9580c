"""The quotas of a fake cluster that clients have set (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["Entity", "QuotaEntries", "Wanted"]

_EXACT, _DEFAULT, _ANY = 0, 1, 2

Entity = tuple[tuple[str, "str | None"], ...]
"""Pairs of type and name, in the order of types; the name of the default is None."""

# Quotas of clients that are enforced here, by the kind that `Quotas` has for them.
_ENFORCED = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "mutation": "controller_mutation_rate",
}
_OF_CLIENTS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_OF_ADDRESSES = ("connection_creation_rate",)


class Wanted(NamedTuple):
    """One component of a filter."""

    kind: str
    match_type: int
    name: str | None

    def takes(self, name: str | None) -> bool:
        """Say whether a name, or the default, is meant."""
        if self.match_type == _ANY:
            return True
        return name == (None if self.match_type == _DEFAULT else self.name)


class QuotaEntries:
    """All quotas that were set, by entity.

    Those of client ids are enforced; those of users and addresses are kept.
    """

    def __init__(self) -> None:
        self._limits: dict[Entity, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(
        self, wanted: Mapping[str, Wanted], *, strict: bool
    ) -> Iterator[tuple[Entity, dict[str, float]]]:
        """Yield the entities that a filter takes, with their limits."""
        for entity, limits in self._limits.items():
            names = dict(entity)
            has_all = all(kind in names and one.takes(names[kind]) for kind, one in wanted.items())
            if has_all and not (strict and names.keys() - wanted.keys()):
                yield entity, limits

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set limits, and remove those that are None."""
        limits = self._limits.setdefault(entity, {})
        for key, value in changes.items():
            if value is None:
                limits.pop(key, None)
            else:
                limits[key] = value
        if not limits:
            del self._limits[entity]

    def rate(self, kind: str, client_id: str | None) -> float | None:
        """Return the limit of a client id, or that of the default; None for no limit."""
        key = _ENFORCED.get(kind, "")
        for name in (client_id, None):
            limit = self._limits.get((("client-id", name),), {}).get(key)
            if limit is not None:
                return limit
        return None


def problem_of(entity: Entity, changes: Mapping[str, float | None]) -> str | None:
    """Say what is wrong with a change; None if nothing is."""
    kinds = {kind for kind, _ in entity}
    if not kinds or not (kinds <= {"user", "client-id"} or kinds == {"ip"}):
        return f"Invalid quota entity {sorted(kinds)}"
    known = _OF_ADDRESSES if kinds == {"ip"} else _OF_CLIENTS
    for key, value in changes.items():
        if key not in known:
            return f"Invalid configuration key {key}"
        if value is not None and value <= 0:
            return f"Quota {key} must be greater than 0"
    return None
