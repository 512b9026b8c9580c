"""Ask brokers for a producer id, and retry until a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiokafka._any_node import AnyNode
from aiokafka._backoff import Backoff
from aiokafka._retry import OutOfTimeError, until
from aiokafka.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    ProducerFenced,
    for_code,
)
from aiokafka.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = ["ProducerIdentity", "check", "identity_in", "init_producer_id", "retry"]

T = TypeVar("T")

_NO_TIMEOUT = 0x7FFFFFFF

# A coordinator that is still writing the markers of the last transaction is ready in milliseconds.
_CONCURRENT_BACKOFF = 0.002


class ProducerIdentity(NamedTuple):
    """What brokers know a producer by."""

    producer_id: int
    epoch: int


async def retry(
    client: AIOKafkaClient,
    what: str,
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    passing: tuple[type[KafkaError], ...] = (),
) -> T:
    """Repeat `attempt` while its error is retriable or one of `passing`; return its result.

    `attempt` ends by `deadline` (loop time) without help, with asyncio.TimeoutError or with a
    KafkaTimeoutError that says more: a timer around it could go off first and lose the reason.
    Raises KafkaTimeoutError at the deadline with the last failure as its cause.
    """
    backoff = Backoff(client.config.retry_backoff, client.config.retry_backoff_max)
    concurrent = Backoff(_CONCURRENT_BACKOFF, client.config.retry_backoff_max)

    waiting = client.waits.on(what)

    def pause(error: KafkaError) -> float:
        waiting.note(error)
        return (concurrent if isinstance(error, ConcurrentTransactions) else backoff).next()

    def passes(error: KafkaError) -> bool:
        return error.retriable or isinstance(error, passing)

    try:
        with waiting:
            return await until(deadline, attempt, pause, passes)
    except OutOfTimeError as late:
        text = f"{what}: not in time; last failure: {late.failure or 'no answer'}"
        raise KafkaTimeoutError(text) from late.failure


async def init_producer_id(client: AIOKafkaClient, deadline: float) -> ProducerIdentity:
    """Return a producer id and its first epoch, for a producer without transactions.

    Any broker can give them; one that did not is not asked again while there are others.

    Raises KafkaTimeoutError at `deadline` (loop time), UnsupportedVersionError before Kafka 0.11,
    other refusals as they are.
    """

    nodes = AnyNode(client)

    async def ask(node_id: int) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
        response = await client.send(node_id, request)
        what = f"node {node_id} gave no producer id"
        check(response.error_code, what)
        return identity_in(response, what)

    what = "a producer id, which idempotence needs"
    return await retry(client, what, deadline, lambda: nodes.ask(ask, deadline))


def identity_in(response: InitProducerIdResponse, what: str) -> ProducerIdentity:
    """Return the identity in a response without an error.

    Raises KafkaProtocolError for a negative id or epoch. Brokers would take records under it, but
    neither recognize duplicates nor count the records to a transaction.
    """
    identity = ProducerIdentity(response.producer_id, response.producer_epoch)
    if min(identity) < 0:
        raise KafkaProtocolError(f"{what}: the response has id {identity[0]}, epoch {identity[1]}")
    return identity


def check(error_code: int, what: str) -> None:
    """Raise the exception for `error_code`, unless that is 0."""
    if error_code == InvalidProducerEpoch.errno:
        # Coordinators before Kafka 2.7 respond with this code to a producer that was fenced.
        raise ProducerFenced()
    if error_code:
        error = for_code(error_code)
        raise ProducerFenced() if error is ProducerFenced else error(what)
