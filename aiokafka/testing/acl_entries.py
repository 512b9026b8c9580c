"""The access control lists of a fake cluster (KIP-11, 290), and what they allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["AclEntries", "Entry", "Filter"]

_ANY, _MATCH, _LITERAL, _PREFIXED = 1, 2, 3, 4
_ALL = 2  # the operation
_DENY, _ALLOW = 2, 3
_ANYTHING = "*"
_CLUSTER = "kafka-cluster"

RESOURCE_TYPES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}
OPERATIONS = {
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
}
# Whose permission also gives the one before the colon.
_IMPLIED_BY = {8: {3, 4, 6, 7}, 10: {11}}


class Entry(NamedTuple):
    """One entry, as it is on the wire."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def applies_to(self, resource_type: int, name: str) -> bool:
        """Say whether it is about a resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == _PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, _ANYTHING)


class Filter(NamedTuple):
    """What a request asks for, as it is on the wire."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def takes(self, entry: Entry) -> bool:
        """Say whether the filter chooses an entry."""
        numbers = (
            (self.resource_type, entry.resource_type),
            (self.operation, entry.operation),
            (self.permission, entry.permission),
        )
        texts = ((self.principal, entry.principal), (self.host, entry.host))
        return (
            all(wanted in (_ANY, is_so) for wanted, is_so in numbers)
            and all(wanted in (None, is_so) for wanted, is_so in texts)
            and self._takes_name(entry)
        )

    def _takes_name(self, entry: Entry) -> bool:
        if self.pattern_type == _MATCH:
            return self.name is None or entry.applies_to(entry.resource_type, self.name)
        same_kind = self.pattern_type in (_ANY, entry.pattern_type)
        return same_kind and self.name in (None, entry.name)


class AclEntries:
    """All entries of a cluster, and the rules by which its authorizer decides.

    There is an authorizer where the setting `authorizer.class.name` names one. What no entry is
    about, it denies, unless `allow.everyone.if.no.acl.found` is true.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._entries: dict[Entry, None] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def is_enforced(self) -> bool:
        """Whether there is an authorizer."""
        return bool(self._config.get("authorizer.class.name"))

    def add(self, entry: Entry) -> None:
        """Add an entry, if it is not there."""
        self._entries[entry] = None

    def find(self, wanted: Filter) -> list[Entry]:
        """Return the entries that a filter takes."""
        return [entry for entry in self._entries if wanted.takes(entry)]

    def remove(self, wanted: Filter) -> list[Entry]:
        """Remove the entries that a filter takes, and return them."""
        found = self.find(wanted)
        for entry in found:
            del self._entries[entry]
        return found

    def allows(self, user: str, host: str, resource: str, name: str, operation: str) -> bool:
        """Say whether a user may do something with a resource."""
        principal = f"User:{user}"
        if not self.is_enforced or principal in self._config["super.users"].split(";"):
            return True
        kind = RESOURCE_TYPES[resource]
        name = _CLUSTER if resource == "cluster" else name
        about = [entry for entry in self._entries if entry.applies_to(kind, name)]
        if not about:
            return self._config["allow.everyone.if.no.acl.found"] == "true"
        wanted = OPERATIONS[operation]
        same = {wanted, _ALL}
        mine = [
            (entry.permission, entry.operation)
            for entry in about
            if entry.principal in (principal, "User:*") and entry.host in (host, _ANYTHING)
        ]
        if any(permission == _DENY and doing in same for permission, doing in mine):
            return False
        enough = same | _IMPLIED_BY.get(wanted, set())
        return any(permission == _ALLOW and doing in enough for permission, doing in mine)

    def may_write_a_topic(self, user: str, host: str) -> bool:
        """Say whether a user may write to at least one topic (KIP-679)."""
        return any(
            self.allows(user, host, "topic", entry.name, "write")
            for entry in self._entries
            if entry.resource_type == RESOURCE_TYPES["topic"]
        )
