"""What client quotas are about, and filters that choose some of them."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka.admin._values import Value
from aiokafka.admin.enums import QuotaName

__all__ = ["QuotaEntity", "QuotaFilter"]

KINDS = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""Kafka's names of the parts of an entity, and the fields that have them."""


@dataclass(frozen=True)
class QuotaEntity(Value):
    """What a quota is about: a user, a client id, both of them together, or an address.

    `QuotaName.DEFAULT` in place of a name stands for all that have no quota of their own. It can be
    a key of a dict. Raises TypeError and ValueError for what cannot be one.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None

    def __post_init__(self) -> None:
        _check(self)
        if QuotaName.ANY in (self.user, self.client_id, self.ip):
            raise ValueError("QuotaName.ANY is for filters only")
        if self.user is self.client_id is self.ip is None:
            raise ValueError("give a user, a client_id or an ip")
        if self.ip is not None and not self.user is self.client_id is None:
            raise ValueError("ip: must stand alone")

    def __str__(self) -> str:
        """Return it as Kafka's tools write it: "user=alice, client-id=<default>"."""
        return ", ".join(f"{kind}={_text(name)}" for kind, name in parts(self).items())


@dataclass(frozen=True)
class QuotaFilter(Value):
    """Chooses quotas; what is not given matches everything.

    Each field is a name, `QuotaName.DEFAULT` for the quota of those without one, or `QuotaName.ANY`
    for every quota that has the field. Raises TypeError for what cannot be one.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None
    strict: bool = False
    """Take only quotas that have the fields given and no others."""

    def __post_init__(self) -> None:
        _check(self)


def parts(value: QuotaEntity | QuotaFilter) -> dict[str, str | QuotaName]:
    """Return the parts that are given, by Kafka's names of them."""
    found = {kind: getattr(value, name) for kind, name in KINDS.items()}
    return {kind: name for kind, name in found.items() if name is not None}


def _check(value: QuotaEntity | QuotaFilter) -> None:
    for kind, name in parts(value).items():
        if not isinstance(name, str | QuotaName):
            raise TypeError(f"{KINDS[kind]}: must be a str or a QuotaName, not {name!r}")
        if name == "" and kind != "client-id":  # a client may have no id
            raise ValueError(f"{KINDS[kind]}: must not be empty")


def _text(name: str | QuotaName) -> str:
    return f"<{name.name.lower()}>" if isinstance(name, QuotaName) else name
