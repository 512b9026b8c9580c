"""Authorization of a fake cluster: ACL entries, and permissions that tests withdraw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import errors
from aiokafka._typing import later

if TYPE_CHECKING:
    from aiokafka.testing.script import RequestContext
else:
    RequestContext = later("aiokafka.testing.script.RequestContext")


# -- ACL entries (KIP-11, KIP-290)


_ANY, _MATCH, _LITERAL, _PREFIXED = 1, 2, 3, 4
_ALL = 2  # the operation that stands for all operations
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
# By the code of an operation, the operations that imply it: READ, WRITE, DELETE and ALTER imply
# DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
_IMPLIED_BY = {8: {3, 4, 6, 7}, 10: {11}}


class Entry(NamedTuple):
    """One ACL entry, with the codes of Kafka's protocol."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def applies_to(self, resource_type: int, name: str) -> bool:
        """Return whether this entry applies to a resource. The entry must have the resource's type.
        Its name must be ``*`` or the name of the resource; in a prefixed entry, a prefix of it."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == _PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, _ANYTHING)


class Filter(NamedTuple):
    """A filter of ACL entries, with the codes of Kafka's protocol."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, entry: Entry) -> bool:
        """Return whether an entry matches the filter."""
        numbers = (
            (self.resource_type, entry.resource_type),
            (self.operation, entry.operation),
            (self.permission, entry.permission),
        )
        texts = ((self.principal, entry.principal), (self.host, entry.host))
        return (
            all(wanted in (_ANY, is_so) for wanted, is_so in numbers)
            and all(wanted in (None, is_so) for wanted, is_so in texts)
            and self._matches_name(entry)
        )

    def _matches_name(self, entry: Entry) -> bool:
        if self.pattern_type == _MATCH:
            return self.name is None or entry.applies_to(entry.resource_type, self.name)
        same_kind = self.pattern_type in (_ANY, entry.pattern_type)
        return same_kind and self.name in (None, entry.name)


class AclEntries:
    """All ACL entries of a cluster, and the decisions of its authorizer.

    The setting `authorizer.class.name` enables the authorizer. It denies access to resources
    without an entry, unless `allow.everyone.if.no.acl.found` is true.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._entries: dict[Entry, None] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def is_enforced(self) -> bool:
        """Whether the cluster has an authorizer."""
        return bool(self._config.get("authorizer.class.name"))

    def add(self, entry: Entry) -> None:
        """Add an entry, unless it exists."""
        self._entries[entry] = None

    def find(self, wanted: Filter) -> list[Entry]:
        return [entry for entry in self._entries if wanted.matches(entry)]

    def remove(self, wanted: Filter) -> list[Entry]:
        """Remove the entries that match a filter, and return them."""
        found = self.find(wanted)
        for entry in found:
            del self._entries[entry]
        return found

    def allows(self, user: str, host: str, resource: str, name: str, operation: str) -> bool:
        """Return whether a user has the permission for an operation on a resource. Super users have
        all permissions. If the cluster has no authorizer, all users have all permissions. A DENY
        entry takes precedence over ALLOW entries."""
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
        """Return whether a user may write to at least one topic (KIP-679) that has an ACL entry."""
        return any(
            self.allows(user, host, "topic", entry.name, "write")
            for entry in self._entries
            if entry.resource_type == RESOURCE_TYPES["topic"]
        )


# -- Permissions that tests withdraw, and permissions that each API needs

RESOURCES = ("topic", "group", "transactional_id", "cluster")
_DENIABLE = tuple(name for name in OPERATIONS if name != "cluster_action")
_ERRORS = {
    "topic": errors.TopicAuthorizationFailedError.errno,
    "group": errors.GroupAuthorizationFailedError.errno,
    "transactional_id": errors.TransactionalIdAuthorizationFailed.errno,
    "cluster": errors.ClusterAuthorizationFailedError.errno,
}
_INIT_PRODUCER_ID = 22
_ANONYMOUS = "ANONYMOUS"

# By API key: the operation on the cluster for which a client needs permission.
_CLUSTER_OPERATIONS = {
    **dict.fromkeys((27, 30, 31, 34, 43, 45, 51, 57, 64, 80, 81), "alter"),
    **dict.fromkeys((29, 35, 46, 50, 55), "describe"),
    **dict.fromkeys((48, 74), "describe_configs"),
    49: "alter_configs",
}
# By API key: the operation on each topic of the request for which a client needs permission.
_TOPIC_OPERATIONS = {
    **dict.fromkeys((0, 24), "write"),
    **dict.fromkeys((1, 8, 28, 47, 61), "read"),
    **dict.fromkeys((2, 3, 9, 23, 68, 75), "describe"),
    **dict.fromkeys((20, 21), "delete"),
    **dict.fromkeys((33, 44), "alter_configs"),
    19: "create",
    32: "describe_configs",
    37: "alter",
}
# By API key: further permissions for a request, as (resource type, request field with the name or
# the names of the resources, operation).
_OTHERS: dict[int, tuple[tuple[str, str, str], ...]] = {
    0: (("transactional_id", "transactional_id", "write"),),
    8: (("group", "group_id", "read"),),
    9: (("group", "group_id", "describe"),),
    11: (("group", "group_id", "read"),),
    12: (("group", "group_id", "read"),),
    13: (("group", "group_id", "read"),),
    14: (("group", "group_id", "read"),),
    22: (("transactional_id", "transactional_id", "write"),),
    24: (
        ("transactional_id", "v3_and_below_transactional_id", "write"),
        ("transactional_id", "transactions", "write"),
    ),
    25: (("transactional_id", "transactional_id", "write"), ("group", "group_id", "read")),
    26: (("transactional_id", "transactional_id", "write"),),
    28: (("transactional_id", "transactional_id", "write"), ("group", "group_id", "read")),
    47: (("group", "group_id", "delete"),),
    68: (("group", "group_id", "read"),),
}


class Acls:
    """Permissions of clients of a :class:`FakeCluster` (its `acls`); by default unrestricted.

    With the broker setting ``authorizer.class.name``, the ACL entries that clients create are
    enforced too (with `super.users` and `allow.everyone.if.no.acl.found` as in Kafka).

    The principal of a client is its SASL user name, or ``"ANONYMOUS"`` without SASL.

    Example::

        cluster.acls.withdraw("topic", "orders", "write")
        ...                                    # producers get TOPIC_AUTHORIZATION_FAILED
        cluster.acls.restore("topic", "orders", "write")
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        #: The access control lists of the cluster.
        self.entries = AclEntries(config)
        self._denied: dict[tuple[str, str | None, str | None, str | None], None] = {}

    # -- for tests -----------------------------------------------------------------------------

    def withdraw(
        self,
        resource: str,
        name: str | None = None,
        operation: str | None = None,
        principal: str | None = None,
    ) -> None:
        """Withdraw the permission for an operation on a resource.

        Args:
            resource: ``"topic"``, ``"group"``, ``"transactional_id"`` or ``"cluster"``.
            name: Name of the resource; None (the default) for all resources of this type.
            operation: ``"read"``, ``"write"``, ``"create"``, ``"delete"``, ``"alter"``,
                ``"describe"``, ``"describe_configs"``, ``"alter_configs"``,
                ``"idempotent_write"``; None (the default) for all operations. Clients without
                ``"describe"`` get no metadata of a topic, but a client that already knows the
                leaders can still produce and fetch.
            principal: Only this user; None (the default) for all users.

        Raises:
            ValueError: unknown resource or operation.
        """
        self._check(resource, operation)
        self._denied[resource, name, operation, principal] = None

    def restore(
        self,
        resource: str,
        name: str | None = None,
        operation: str | None = None,
        principal: str | None = None,
    ) -> None:
        """Undo :meth:`withdraw` with the same arguments.

        Raises:
            ValueError: unknown resource or operation.
        """
        self._check(resource, operation)
        self._denied.pop((resource, name, operation, principal), None)

    def heal(self) -> None:
        """Undo every :meth:`withdraw`. ACL entries stay."""
        self._denied.clear()

    # -- for the brokers -----------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether there are no restrictions, so that checks can be skipped."""
        return not (self._denied or self.entries.is_enforced)

    def denies(self, context: RequestContext, resource: str, name: str, operation: str) -> bool:
        """Return whether a client lacks the permission for an operation on a resource: a test has
        withdrawn it, or the ACL entries do not allow it."""
        principal = _principal(context)
        withdrawn = any(
            (resource, at, doing, by) in self._denied
            for at in (name, None)
            for doing in (operation, None)
            for by in (principal, None)
        )
        if withdrawn or not self.entries.is_enforced:
            return withdrawn
        host = context.client_host
        if self.entries.allows(principal, host, resource, name, operation):
            return False
        # CREATE on the cluster permits the creation of any topic.
        is_new = (resource, operation) == ("topic", "create")
        return not (is_new and self.entries.allows(principal, host, "cluster", "", "create"))

    def check_topic(self, context: RequestContext, name: str) -> int:
        """Return the error code for a topic of a request; 0 if the client has the permission."""
        if self.is_idle:
            return 0
        operation = _TOPIC_OPERATIONS.get(context.api_key, "describe")
        denied = self.denies(context, "topic", name, operation)
        return errors.TopicAuthorizationFailedError.errno if denied else 0

    def check_named(self, context: RequestContext, resource: str, name: str, operation: str) -> int:
        """Return the error code for a named resource; 0 if the client has the permission."""
        denied = not self.is_idle and self.denies(context, resource, name, operation)
        return _ERRORS[resource] if denied else 0

    def check(self, context: RequestContext, request: Any) -> int:
        """Return the error code for a whole request; 0 if the client has the permission. Handlers
        check each topic of a request with :meth:`check_topic`, and each of several groups with
        :meth:`check_named`.
        """
        on_cluster = _CLUSTER_OPERATIONS.get(context.api_key)
        if context.api_key == _INIT_PRODUCER_ID and request.transactional_id is None:
            writes = self.entries.may_write_a_topic(_principal(context), context.client_host)
            on_cluster = None if writes else "idempotent_write"
        if on_cluster is not None and self.denies(context, "cluster", "", on_cluster):
            return errors.ClusterAuthorizationFailedError.errno
        for resource, field, operation in _OTHERS.get(context.api_key, ()):
            for name in _names(request, field):
                if self.denies(context, resource, name, operation):
                    return _ERRORS[resource]
        return 0

    @staticmethod
    def _check(resource: str, operation: str | None) -> None:
        if resource not in RESOURCES:
            raise ValueError(f"resource must be one of {', '.join(RESOURCES)}, not {resource!r}")
        if operation is not None and operation not in _DENIABLE:
            known = ", ".join(_DENIABLE)
            raise ValueError(f"operation must be one of {known}, not {operation!r}")


def _principal(context: RequestContext) -> str:
    return _ANONYMOUS if context.session is None else context.session.user


def _names(request: Any, field: str) -> list[str]:
    """Return the resource names in a request field. The field is a string, a list of strings, or a
    list of structs with a group id or transactional id.
    """
    value = getattr(request, field, None)
    if not value:
        return []
    if isinstance(value, str):
        return [value]
    return [
        one if isinstance(one, str) else getattr(one, "group_id", None) or one.transactional_id
        for one in value
    ]
