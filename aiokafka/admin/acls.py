"""Access control lists: who may do what."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.admin import _acls
from aiokafka.admin._acl_values import AclBinding, AclFilter, check_binding, check_filter
from aiokafka.admin._room import Room

__all__ = ["Acls"]


class Acls(Room):
    """Calls about access control lists: `admin.acls`.

    A cluster without `authorizer.class.name` refuses them with SecurityDisabled, and a user without
    rights to the cluster gets ClusterAuthorizationFailedError. Brokers enforce a change a moment
    after it was made.
    """

    async def describe(
        self, filter: AclFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Return the entries that a filter chooses (Java: describeAcls, KIP-140, Kafka 0.11).

        Args:
            filter: which entries; by default all.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = check_filter("filter", AclFilter() if filter is None else filter)
        return await _acls.describe(self._router, wanted, self._deadline(timeout_ms))

    async def create(
        self, bindings: Iterable[AclBinding], *, timeout_ms: float | None = None
    ) -> None:
        """Add entries (Java: createAcls, KIP-140, Kafka 0.11). One that is there already stays.

        Args:
            bindings: the entries.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of an entry, such as InvalidRequestError: AdminItemsError, by entry, if
        several were given. Raises ValueError for an entry that cannot be.
        """
        wanted = [check_binding(binding) for binding in bindings]
        await _acls.create(self._router, wanted, self._deadline(timeout_ms))

    async def delete(
        self, filters: Iterable[AclFilter], *, timeout_ms: float | None = None
    ) -> dict[AclFilter, list[AclBinding]]:
        """Delete all entries that filters choose (Java: deleteAcls, KIP-140, Kafka 0.11).

        Args:
            filters: which entries. `AclFilter.of` chooses a single one; `AclFilter()` all of them.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns what each filter has deleted. If the response is lost and the call is sent again,
        entries that went with the first attempt are missing there. Raises the error of a filter:
        AdminItemsError, by filter, if several were given. Where a filter could delete some
        entries and others not, its error is itself an AdminItemsError, by entry.
        """
        wanted = [check_filter("filters", one) for one in filters]
        return await _acls.delete(self._router, wanted, self._deadline(timeout_ms))
