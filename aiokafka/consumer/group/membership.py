"""What memberships of both group protocols have in common: who we are to the group, and the way to
its coordinator."""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._log import SubjectLog
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.consumer.position.committed import Identity
from aiokafka.errors import (
    BrokerResponseError,
    FencedInstanceId,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    InvalidSessionTimeoutError,
    KafkaError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    for_code,
)

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._vitals import Contact
    from aiokafka.client import AIOKafkaClient
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request, Response

    R = TypeVar("R", bound=Response)

__all__ = ["Membership"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

_MOVED = (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError)


class Membership(abc.ABC):
    """Who this consumer is in its group. One request at a time; what to do about an error is the
    GroupCoordinator's.

    Owns: `member_id`; `generation`, or the member's epoch, -1 when not a member; `coordinator_id`,
    None when not known; `beat_at`, until when the coordinator has counted us as a member for sure
    (loop time). All requests carry the static member's instance id (KIP-345).
    """

    def __init__(
        self, client: AIOKafkaClient, config: ConsumerConfig, group_id: str, contact: Contact
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.coordinator_id: int | None = None
        self.beat_at: float | None = None
        self._counted_at = 0.0
        self._client = client
        self._config = config
        self._log = SubjectLog(log, config.subject)
        self._contact = contact
        self._told: int | None = None
        self._instance_id = config.group_instance_id

    @property
    @abc.abstractmethod
    def is_member(self) -> bool:
        """Whether the group counts, or may count, this consumer as a member."""

    @property
    def identity(self) -> Identity:
        """For commits."""
        if self.generation < 0:
            return Identity()
        return Identity(self.generation, self.member_id, self._instance_id)

    @abc.abstractmethod
    def forget_member(self) -> None:
        """We are no member any more, by our own choice."""

    @abc.abstractmethod
    def fail(self) -> None:
        """We are no member any more, and nothing that we do by ourselves mends that."""

    def become_stale(self) -> None:
        """The application does not ask for records, so we have left."""
        self.forget_member()

    @abc.abstractmethod
    async def leave(self, reason: str) -> None:
        """Tell the group that we go. Raises errors of the connection and of the answer."""

    # -- the coordinator ---------------------------------------------------------------------------

    async def _send(self, request: Request[R], limit: float, patience: float = 0.0) -> R:
        node_id = await self._coordinator()
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        with self._contact.asked(type(request).__name__.removesuffix("Request"), patience):
            try:
                connection = await self._client.connection(
                    node_id, ConnectionGroup.COORDINATION, timeout=limit
                )
                version = self._pick(connection, request)
                response = await connection.request(request, version=version, timeout=limit)
                # The answer may have lain here while this process was frozen: all it proves is that
                # we were members when we asked. While it makes us wait, the session does not end.
                self._counted_at = loop.time() if patience else sent_at
                return response
            except KafkaError as error:
                self._contact.note(error)
                if not isinstance(error, BrokerResponseError):
                    self.forget_coordinator(str(error))
                raise

    def _pick(self, connection: BrokerConnection, request: Request[Any]) -> int:
        """The version to use. Raises UnsupportedVersionError."""
        return connection.pick(type(request))

    async def _coordinator(self) -> int:
        deadline = asyncio.get_running_loop().time() + self._config.client.request_timeout
        self.coordinator_id = node_id = await self._client.coordinator(
            CoordinationType.GROUP, self.group_id, deadline, self._contact.fail
        )
        if node_id != self._told:
            self._log.info("The coordinator is node %d", node_id)
            self._told = node_id
        return node_id

    def forget_coordinator(self, why: str) -> None:
        """Look it up again with the next request."""
        self.coordinator_id = None
        self._client.forget_coordinator(CoordinationType.GROUP, self.group_id, why)

    def _check(self, error_code: int, message: str | None = None) -> None:
        """Raise the error of an answer."""
        if not error_code:
            self._contact.succeed()
            self.beat_at = self._counted_at
            return
        error = for_code(error_code)
        is_authorization = error is GroupAuthorizationFailedError
        parts = [f"group {self.group_id!r}", message, self._explain(error)]
        subject = ": ".join(part for part in parts if part)
        failure = error(self.group_id if is_authorization else subject)
        self._contact.note(failure)
        if error is RebalanceInProgressError:
            self.beat_at = self._counted_at
        if error in _MOVED:
            self.forget_coordinator(error.__name__)
        raise failure

    def _explain(self, error: type[BrokerResponseError]) -> str:
        """What of the configuration the error is about."""
        if error is FencedInstanceId:
            return f"another member joined with group_instance_id={self._instance_id!r}"
        if error is InvalidSessionTimeoutError:
            return f"session_timeout_ms={round(self._config.session_timeout * 1000)} was asked for"
        return ""
