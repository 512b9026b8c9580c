"""The exceptions of the package, and the table of Kafka's error codes.

Errors with an error code of a broker derive from `BrokerResponseError`, errors of failed
connections mostly from `KafkaConnectionError`. Wrong calls raise `IllegalStateError`,
`IllegalArgumentError` or `IllegalOperation`. All errors derive from `KafkaError`, except
`ConsumerStoppedError` and `IllegalOperation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from aiokafka._partitions import TopicPartition
from aiokafka._typing import later

if TYPE_CHECKING:
    from aiokafka._consumer_record import ConsumerRecord
else:
    ConsumerRecord = later("aiokafka._consumer_record.ConsumerRecord")


class KafkaError(RuntimeError):
    """Base class of the errors of this package.

    Its class attributes classify errors, for callers that decide how to react to them.
    """

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed if it is repeated later."""

    invalid_metadata: ClassVar[bool] = False
    """Whether the error means that the client's metadata of the cluster is out of date."""

    is_fatal: ClassVar[bool] = False
    """Whether the client object is unusable: stop it, remove the cause, and create a new client
    (KIP-1050)."""

    requires_abort: ClassVar[bool] = False
    """Whether the transaction must be aborted; the producer can continue after that (KIP-1050)."""

    may_have_been_written: bool | None = None
    """For an error of a record's delivery: whether the record may be in the log nevertheless.

    True if an attempt got no response, or a response that does not say whether the record was
    written; a repeated `send` could write the record twice. False if no broker has written the
    record. None for all other errors.
    """

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


kafka_errors: dict[int, type[BrokerResponseError]] = {}
"""The class of each error code that this version of the package knows."""


class _Computed:
    """A descriptor: reading the attribute of a class returns `compute(cls)`.

    To compute the attributes of all classes at import would take longer than to create the classes.
    """

    def __init__(self, compute: Callable[[type[Any]], str]) -> None:
        self._compute = compute

    def __get__(self, error: object, cls: type[Any]) -> str:
        return self._compute(cls)


def _protocol_name(cls: type[BrokerResponseError]) -> str:
    # A subclass without an error code of its own has the name of the inherited code.
    name = kafka_errors[cls.errno].__name__
    for ending in ("Error", "Exception"):
        name = name.removesuffix(ending) or name
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()


def _meaning(cls: type[BrokerResponseError]) -> str:
    return "" if cls is BrokerResponseError else " ".join((cls.__doc__ or "").split())


class BrokerResponseError(KafkaError):
    """The broker responded with an error code."""

    errno: ClassVar[int] = -1
    """The error code in Kafka's protocol."""

    message: ClassVar[str] = cast("str", _Computed(_protocol_name))
    """The name of the error in Kafka's protocol, in capitals."""

    description: ClassVar[str] = cast("str", _Computed(_meaning))
    """The meaning of the error code, and the broker setting that limits a value, if there is one.

    `str(error)` ends with the description, unless the text already contains it. By default it is
    the docstring of the class.
    """

    record_index: int | None = None
    """The index of an invalid record in its batch, if the leader rejected the batch because of
    invalid records and named them (KIP-467). With `send_batch`, the index of the first invalid
    record. None for the other records of the batch, and if the leader named no record."""

    def __init_subclass__(
        cls,
        errno: int | None = None,
        retriable: bool | None = None,
        invalid_metadata: bool | None = None,
        is_fatal: bool | None = None,
        requires_abort: bool | None = None,
        message: str | None = None,
    ) -> None:
        super().__init_subclass__()
        if retriable is not None:
            cls.retriable = retriable
        if invalid_metadata is not None:
            cls.invalid_metadata = invalid_metadata
        if is_fatal is not None:
            cls.is_fatal = is_fatal
        if requires_abort is not None:
            cls.requires_abort = requires_abort
        if message is not None:
            cls.message = message
        if errno is not None:
            if errno in kafka_errors:
                raise TypeError(f"error code {errno} is already {kafka_errors[errno].__name__}")
            cls.errno = errno
            kafka_errors[errno] = cls

    def __str__(self) -> str:
        text = f"[Error {self.errno}] {super().__str__()}"
        meaning = self.description
        if meaning.rstrip(".").lower() in text.lower():
            return text
        return f"{text.rstrip('.')}{'. ' if self.args else ': '}{meaning}"


_unknown_errors: dict[int, type[BrokerResponseError]] = {}


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of an error code.

    For a code that is not in `kafka_errors`, return a subclass of `UnknownError` with the code in
    `errno`. For code 0, return `NoError`.
    """
    known = kafka_errors.get(error_code) or _unknown_errors.get(error_code)
    if known is not None:
        return known
    attributes = {
        "__module__": __name__,
        "__doc__": "The broker responded with a code that this version does not know.",
        "errno": error_code,
        "message": f"UNKNOWN_CODE_{error_code}",
    }
    made = type("UnknownError", (UnknownError,), attributes)
    _unknown_errors[error_code] = made
    return made


def _restore_unknown(errno: int, args: tuple[Any, ...]) -> BrokerResponseError:
    return for_code(errno)(*args)


# -- Wrong calls


class IllegalStateError(KafkaError):
    """The state of the object does not allow the call."""


class IllegalArgumentError(KafkaError):
    """An argument of a call is not valid."""


class WrongArgument(IllegalArgumentError, ValueError, AssertionError):
    """An argument of a call to the producer is not valid.

    Callers may catch the error as ValueError or KafkaError, and also as AssertionError, which
    aiokafka 0.14 raised.
    """


class ConsumerStoppedError(Exception):
    """The consumer was stopped before the call, or while the call waited for records or for a
    response."""


class IllegalOperation(Exception):
    """The configuration of the client does not allow the call, such as a commit without a group."""


class TransactionStateError(IllegalOperation, IllegalStateError, AssertionError):
    """The state of the producer's transaction does not allow the call.

    Callers may catch the error as `IllegalOperation` or `KafkaError`, and also as `AssertionError`,
    which aiokafka 0.14 raised.
    """


class KafkaConfigurationError(KafkaError):
    """A configuration is not valid, or options of clients contradict each other."""


class UnsupportedCodecError(KafkaError):
    """A compression codec is unknown, or needs a package that is not installed."""


class ProducerClosed(KafkaError):
    """The producer was stopped, or was never started."""


# -- Failed connections


class KafkaConnectionError(KafkaError):
    """A connection could not be established, or has broken."""

    retriable = True
    invalid_metadata = True


class KafkaUnreachableError(KafkaConnectionError):
    """The brokers that a consumer needs have not responded for `unreachable_timeout_ms`.

    The consumer keeps retrying: the same call returns records again when the brokers respond.
    """

    def __init__(
        self,
        parties: tuple[str, ...] = (),
        unreachable_ms: float = 0.0,
        last_error: BaseException | None = None,
    ) -> None:
        cause = f": {last_error}" if last_error is not None else ""
        names = ", ".join(parties) or "no broker"
        super().__init__(f"no answer for {unreachable_ms / 1000:.1f} s from {names}{cause}")
        self.parties = parties
        """The brokers that do not respond, such as "Broker 1", "The coordinator of group g" or
        "The leader of orders-0"."""
        self.unreachable_ms = unreachable_ms
        """The duration of the outage in milliseconds."""
        self.last_error = last_error
        """The error of the last attempt; None if there was no error, only no response."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parties, self.unreachable_ms, self.last_error)


class NodeNotReadyError(KafkaError):
    """There is no usable connection to the node at the moment."""

    retriable = True


class NoBrokersAvailable(KafkaError):
    """No broker of the cluster could be reached."""

    retriable = True
    invalid_metadata = True


class KafkaUnavailableError(KafkaError):
    """The cluster could not be reached.

    This package does not raise it; programs written for aiokafka 0.14 may catch it.
    """


class AdminItemsError(KafkaError):
    """Some or all items of an admin call failed. The text has the errors of the first five failed
    items.

    A call with a single item raises the error of that item instead.
    """

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        #: The error of each item that failed.
        self.errors = dict(errors)
        #: The result of each item that succeeded.
        self.results = dict(results)
        count = len(self.errors)
        shown = "; ".join(f"{item}: {error}" for item, error in list(self.errors.items())[:5])
        more = f"; and {count - 5} more" if count > 5 else ""
        super().__init__(f"{count} of {count + len(self.results)} items failed: {shown}{more}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors, self.results)


class KafkaTimeoutError(KafkaError):
    """The call did not end within its timeout."""


class KafkaProtocolError(KafkaError):
    """The peer sent bytes that do not follow Kafka's protocol."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """The correlation id of a response is not that of the oldest in-flight request."""

    retriable = True


class Cancelled(KafkaError):
    """The request was cancelled before its response arrived.

    This package does not raise it; programs written for aiokafka 0.14 may catch it.
    """

    retriable = True


class TooManyInFlightRequests(KafkaError):
    """The connection has reached its limit of in-flight requests.

    This package does not raise it; programs written for aiokafka 0.14 may catch it.
    """

    retriable = True


class StaleMetadata(KafkaError):
    """The metadata of the cluster is out of date.

    This package does not raise it; programs written for aiokafka 0.14 may catch it.
    """

    retriable = True
    invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):
    """A metadata response lists no brokers."""

    retriable = True


class UnrecognizedBrokerVersion(KafkaError):
    """The version of the broker could not be determined.

    This package does not raise it; programs written for aiokafka 0.14 may catch it.
    """


class IncompatibleBrokerVersion(KafkaError):
    """The client and the broker have no version of a request in common, or the broker lacks a
    feature."""

    is_fatal = True


class AuthenticationFailedError(KafkaError):
    """Authentication has failed: the broker or the identity provider rejected the credentials, the
    client has no usable credentials, or the broker could not prove its own identity."""

    is_fatal = True


class AuthenticationMethodNotSupported(KafkaError):
    """The broker does not offer the requested authentication method, or a package that the method
    needs is not installed."""

    is_fatal = True


# -- Records and offsets


class NoOffsetForPartitionError(KafkaError):
    """The partition has no committed offset, and `auto_offset_reset` is "none"; or a reset of group
    offsets needs the committed offset."""


class RecordTooLargeError(KafkaError):
    """A record is larger than the fetch size limit, so the consumer cannot read it or any later
    record."""


class QuotaViolationError(KafkaError):
    """A quota was exceeded.

    This package does not raise it; programs written for aiokafka 0.14 may catch it.
    """


class CommitFailedError(KafkaError):
    """The offsets were not committed, because the partitions are now assigned to another member."""

    requires_abort = True

    def __init__(self, *args: Any) -> None:
        super().__init__(_COMMIT_FAILED, *args)

    def __str__(self) -> str:
        advice, *details = self.args
        named = "; ".join(str(detail) for detail in details)
        return f"{type(self).__name__}: {named + '. ' if named else ''}{advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args[1:], {"args": self.args}


_COMMIT_FAILED = (
    "Commit cannot be completed since the group no longer counts this consumer as the owner of the "
    "partitions, so another member will read the records again. "
    "Usually the time between two calls of getmany() or getone() was longer than "
    "max_poll_interval_ms, or the event loop was blocked for longer than session_timeout_ms. Raise "
    "these, take fewer records at once with max_poll_records, or do the work elsewhere while "
    "polling goes on."
)


class RecordDeserializationError(KafkaError):
    """A key or value deserializer raised an exception.

    The position of the consumer stays at the record. To skip the record, seek to `offset + 1`. The
    exception of the deserializer is `cause`, and also `__cause__`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: int,
        record: ConsumerRecord,
        cause: BaseException,
        part: str = "value",
    ) -> None:
        super().__init__(
            f"the {part} deserializer raised {cause!r} for offset {offset} of {topic_partition}; "
            f"seek to {offset + 1} to go past the record"
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.record = record
        """The record with its key, value and headers as bytes."""
        self.cause = cause
        self.part = part
        """The deserializer that raised: "key" or "value"."""
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic_partition, self.offset, self.record, self.cause, self.part)


# -- Error codes of brokers

# The text of the errors of a fenced producer. The docstrings of their classes have the same text.
_FENCED = (
    "a newer producer with the same transactional_id has taken over, or the transaction took "
    "longer than transaction_timeout_ms"
)


class UnknownError(BrokerResponseError, errno=-1):
    """An unexpected error occurred in the broker; see the broker's log."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the code instead of the class: pickle cannot find a class that `for_code` has
        # created.
        return _restore_unknown, (self.errno, self.args)


class NoError(BrokerResponseError, errno=0, message="NO_ERROR"):
    """Success: not an error, but the meaning of code 0."""


class OffsetOutOfRangeError(BrokerResponseError, errno=1):
    """The broker has no record with this offset: it is below the first or above the end offset of
    the partition.
    """


class CorruptRecordException(
    BrokerResponseError, errno=2, retriable=True, message="CORRUPT_MESSAGE"
):
    """A record failed its CRC check, has an invalid size, or a null key in a compacted topic."""

    topic_partition: TopicPartition | None = None
    """The partition of the corrupt batch, if a consumer raised the error; otherwise None."""
    next_offset: int | None = None
    """The offset after the corrupt batch. A consumer that seeks to this offset skips the batch.
    None if the end of the batch is unknown."""


class UnknownTopicOrPartitionError(
    BrokerResponseError, errno=3, retriable=True, invalid_metadata=True
):
    """The broker does not have this topic or partition: it may be new, deleted, or misspelt."""


class InvalidFetchRequestError(BrokerResponseError, errno=4, message="INVALID_FETCH_SIZE"):
    """The broker does not accept the sizes of the fetch; see `fetch_max_bytes` and
    `max_partition_fetch_bytes`.
    """


class LeaderNotAvailableError(BrokerResponseError, errno=5, retriable=True, invalid_metadata=True):
    """The partition has no leader at the moment; an election is probably going on."""


class NotLeaderForPartitionError(
    BrokerResponseError, errno=6, retriable=True, invalid_metadata=True
):
    """The broker is not the leader of the partition (or, where followers can serve the request, not
    a replica); the metadata is out of date.
    """


class RequestTimedOutError(BrokerResponseError, errno=7, retriable=True):
    """The broker did not complete the request within the request's timeout; it may still complete
    the request later.
    """


class BrokerNotAvailableError(BrokerResponseError, errno=8):
    """The broker is not available: it is starting, or shutting down."""


class ReplicaNotAvailableError(BrokerResponseError, errno=9, retriable=True, invalid_metadata=True):
    """The broker does not have the requested replica."""


class MessageSizeTooLargeError(BrokerResponseError, errno=10):
    """The batch is larger than the topic's `max.message.bytes` or the producer's
    `max_request_size`.
    """


class StaleControllerEpochError(BrokerResponseError, errno=11):
    """The controller has moved to another broker."""


class OffsetMetadataTooLargeError(BrokerResponseError, errno=12):
    """The metadata string of a committed offset exceeds the broker's
    `offset.metadata.max.bytes`.
    """


class StaleLeaderEpochCodeError(
    BrokerResponseError, errno=13, retriable=True, invalid_metadata=True
):
    """The connection was lost before the response arrived (NETWORK_EXCEPTION)."""


class GroupLoadInProgressError(
    BrokerResponseError, errno=14, retriable=True, message="COORDINATOR_LOAD_IN_PROGRESS"
):
    """The coordinator is still loading the state of this group or transaction."""


class GroupCoordinatorNotAvailableError(
    BrokerResponseError, errno=15, retriable=True, message="COORDINATOR_NOT_AVAILABLE"
):
    """There is no coordinator at the moment: the internal topic with its state is being created,
    or has no leader.
    """


class NotCoordinatorForGroupError(
    BrokerResponseError, errno=16, retriable=True, message="NOT_COORDINATOR"
):
    """The broker is not the coordinator of this group or transactional id."""


class InvalidTopicError(BrokerResponseError, errno=17, is_fatal=True):
    """The topic name is not valid, or it is an internal topic, to which clients must not write. A
    name has at most 249 characters (letters, digits, `.`, `_` and `-`), and is not `.` or `..`.
    """


class RecordListTooLargeError(BrokerResponseError, errno=18):
    """The batch is larger than the topic's `segment.bytes`."""


class NotEnoughReplicasError(BrokerResponseError, errno=19, retriable=True):
    """Fewer replicas are in sync than the topic's `min.insync.replicas` requires; nothing was
    written.
    """


class NotEnoughReplicasAfterAppendError(BrokerResponseError, errno=20, retriable=True):
    """The leader wrote the batch, but fewer replicas are in sync than the topic's
    `min.insync.replicas` requires.
    """


class InvalidRequiredAcksError(BrokerResponseError, errno=21, is_fatal=True):
    """The value of acks is not -1, 0 or 1."""


class IllegalGenerationError(BrokerResponseError, errno=22, requires_abort=True):
    """The generation in the request is not the current generation of the group: the group has
    rebalanced without this member.
    """


class InconsistentGroupProtocolError(BrokerResponseError, errno=23):
    """The members of the group have no partition assignment strategy in common, or the group is of
    another type.
    """


class InvalidGroupIdError(BrokerResponseError, errno=24):
    """The group id is empty, or the broker does not accept it."""


class UnknownMemberIdError(BrokerResponseError, errno=25, requires_abort=True):
    """The coordinator does not know this member. Usually it was removed because it sent no
    heartbeat for session_timeout_ms, or did not poll for max_poll_interval_ms.
    """


class InvalidSessionTimeoutError(BrokerResponseError, errno=26):
    """session_timeout_ms is not between the broker's `group.min.session.timeout.ms` and
    `group.max.session.timeout.ms`.
    """


class RebalanceInProgressError(BrokerResponseError, errno=27):
    """The group is rebalancing; the member has to join again."""


class InvalidCommitOffsetSizeError(BrokerResponseError, errno=28):
    """The offsets of the request, with their metadata, are larger than the largest record of
    `__consumer_offsets` (`offset.metadata.max.bytes` limits each metadata string).
    """


class TopicAuthorizationFailedError(BrokerResponseError, errno=29, requires_abort=True):
    """The client is not authorized to use the topic; check its ACLs (READ to consume, WRITE to
    produce, DESCRIBE for both).
    """


class GroupAuthorizationFailedError(BrokerResponseError, errno=30, requires_abort=True):
    """The client is not authorized to use the group; check its ACLs (READ on the group)."""


class ClusterAuthorizationFailedError(BrokerResponseError, errno=31, is_fatal=True):
    """The client is not authorized for this operation on the cluster; check its ACLs."""


class InvalidTimestampError(BrokerResponseError, errno=32):
    """The timestamp of a record is outside the range that the topic accepts
    (`message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`).
    """


class UnsupportedSaslMechanismError(BrokerResponseError, errno=33, is_fatal=True):
    """The broker does not offer the requested SASL mechanism; see `sasl_mechanism`."""


class IllegalSaslStateError(BrokerResponseError, errno=34, is_fatal=True):
    """The request is not valid in this SASL state; perhaps the listener does not use SASL: see
    `security_protocol`.
    """


class UnsupportedVersionError(BrokerResponseError, errno=35, is_fatal=True):
    """The broker does not support the version of the request, or a feature that the request
    needs.
    """


class TopicAlreadyExistsError(BrokerResponseError, errno=36):
    """A topic with this name exists already."""


class InvalidPartitionsError(BrokerResponseError, errno=37):
    """The number of partitions is below 1, or not larger than the number that the topic has now."""


class InvalidReplicationFactorError(BrokerResponseError, errno=38, is_fatal=True):
    """The replication factor is below 1, or larger than the number of running brokers."""


class InvalidReplicationAssignmentError(BrokerResponseError, errno=39):
    """The assignment of replicas to brokers is not valid."""


class InvalidConfigurationError(
    BrokerResponseError, errno=40, is_fatal=True, message="INVALID_CONFIG"
):
    """A configuration setting is unknown, or its value is not valid."""


class NotControllerError(BrokerResponseError, errno=41, retriable=True):
    """The broker is not the controller of the cluster."""


class InvalidRequestError(BrokerResponseError, errno=42):
    """The request is malformed or contradicts itself; see the broker's log."""


class UnsupportedForMessageFormatError(BrokerResponseError, errno=43, is_fatal=True):
    """The message format of the topic does not support the request."""


class PolicyViolationError(BrokerResponseError, errno=44):
    """The request violates a policy of the broker (`create.topic.policy.class.name`,
    `alter.config.policy.class.name`), or a setting of the topic forbids the operation.
    """


class OutOfOrderSequenceNumber(BrokerResponseError, errno=45, requires_abort=True):
    """The sequence number of the batch is not the next one that the broker expects from the
    producer: an earlier batch is missing.
    """


class DuplicateSequenceNumber(BrokerResponseError, errno=46):
    """The broker has already written the batch with this sequence number."""


class InvalidProducerEpoch(BrokerResponseError, errno=47, requires_abort=True):
    """A newer producer with the same transactional_id has taken over, or the transaction took
    longer than transaction_timeout_ms.
    """


class InvalidTxnState(BrokerResponseError, errno=48, is_fatal=True):
    """The state of the transaction does not allow the operation."""


class InvalidProducerIdMapping(BrokerResponseError, errno=49, is_fatal=True):
    """The producer id is not the current one of the transactional id; the coordinator removes it
    `transactional.id.expiration.ms` after its last use.
    """


class InvalidTransactionTimeout(BrokerResponseError, errno=50, is_fatal=True):
    """transaction_timeout_ms is larger than the broker's `transaction.max.timeout.ms`."""


class ConcurrentTransactions(BrokerResponseError, errno=51, retriable=True):
    """The coordinator is still completing the previous transaction of this producer."""


class TransactionCoordinatorFenced(BrokerResponseError, errno=52, is_fatal=True):
    """The transaction marker was sent by a coordinator that another coordinator has replaced."""


class TransactionalIdAuthorizationFailed(BrokerResponseError, errno=53, is_fatal=True):
    """The client is not authorized to use the transactional id; check its ACLs (WRITE on the
    transactional id).
    """


class SecurityDisabled(BrokerResponseError, errno=54):
    """The broker has no authorizer, so ACLs can be neither read nor changed."""


class OperationNotAttempted(BrokerResponseError, errno=55, requires_abort=True):
    """The operation was not attempted, because another operation of the same request failed."""


class KafkaStorageError(
    BrokerResponseError,
    errno=56,
    retriable=True,
    invalid_metadata=True,
    message="KAFKA_STORAGE_ERROR",
):
    """The broker cannot access the disk that holds the partition."""


class LogDirNotFound(BrokerResponseError, errno=57):
    """The broker does not have the requested log directory."""


class SaslAuthenticationFailed(BrokerResponseError, errno=58, is_fatal=True):
    """The broker rejected the client's credentials."""


class UnknownProducerId(BrokerResponseError, errno=59, requires_abort=True):
    """The broker has no state of the producer id in this partition: all records of the producer
    were deleted, or `producer.id.expiration.ms` has passed since its last write.
    """


class ReassignmentInProgress(BrokerResponseError, errno=60):
    """A reassignment of the partition is in progress."""


class DelegationTokenAuthDisabled(BrokerResponseError, errno=61):
    """Delegation tokens are not enabled at the broker (`delegation.token.secret.key`)."""


class DelegationTokenNotFound(BrokerResponseError, errno=62):
    """The broker does not know the delegation token."""


class DelegationTokenOwnerMismatch(BrokerResponseError, errno=63):
    """The principal is neither the owner nor a renewer of the delegation token."""


class DelegationTokenRequestNotAllowed(BrokerResponseError, errno=64):
    """Delegation token requests need a connection with SASL or with mutual TLS (a client
    certificate), and not one that was authenticated by a delegation token.
    """


class DelegationTokenAuthorizationFailed(BrokerResponseError, errno=65, is_fatal=True):
    """The client is not authorized for this delegation token operation."""


class DelegationTokenExpired(BrokerResponseError, errno=66):
    """The delegation token has expired."""


class InvalidPrincipalType(BrokerResponseError, errno=67):
    """The principal type is not supported."""


class NonEmptyGroup(BrokerResponseError, errno=68):
    """The group has members."""


class GroupIdNotFound(BrokerResponseError, errno=69):
    """The group does not exist."""


class FetchSessionIdNotFound(BrokerResponseError, errno=70, retriable=True):
    """The broker does not have the fetch session, or has evicted it."""


class InvalidFetchSessionEpoch(BrokerResponseError, errno=71, retriable=True):
    """The epoch of the fetch session is not the one that the broker expects."""


class ListenerNotFound(BrokerResponseError, errno=72, retriable=True, invalid_metadata=True):
    """The leader has no listener with the name of the listener that this connection uses."""


class TopicDeletionDisabled(BrokerResponseError, errno=73):
    """The broker is configured not to delete topics (`delete.topic.enable`)."""


class FencedLeaderEpoch(BrokerResponseError, errno=74, retriable=True, invalid_metadata=True):
    """The request has an older leader epoch than the broker knows; the metadata is out of date."""


class UnknownLeaderEpoch(BrokerResponseError, errno=75, retriable=True):
    """The request has a newer leader epoch than the broker knows. The broker will soon learn the
    epoch from the controller, so the client retries.
    """


class UnsupportedCompressionType(BrokerResponseError, errno=76):
    """The version of the request does not allow the compression type of the records (zstd: Kafka
    2.1 and later).
    """


class StaleBrokerEpoch(BrokerResponseError, errno=77):
    """The broker epoch in the request is not the current one."""


class OffsetNotAvailable(BrokerResponseError, errno=78, retriable=True):
    """The new leader does not know its high watermark yet."""


class MemberIdRequired(BrokerResponseError, errno=79):
    """The member has to join again, with the member id in the coordinator's response."""


class PreferredLeaderNotAvailable(
    BrokerResponseError, errno=80, retriable=True, invalid_metadata=True
):
    """The preferred leader is not available."""


class GroupMaxSizeReached(BrokerResponseError, errno=81):
    """The group already has the maximum number of members (`group.max.size`, or
    `group.consumer.max.size`).
    """


class FencedInstanceId(BrokerResponseError, errno=82, requires_abort=True, is_fatal=True):
    """Another member has joined the group with the same group_instance_id; each running member
    needs an id of its own. The error is fatal for a consumer. A producer that commits the
    consumer's offsets can abort the transaction and continue: there, `is_fatal` is False.
    """


class EligibleLeadersNotAvailable(
    BrokerResponseError, errno=83, retriable=True, invalid_metadata=True
):
    """No replica that could become the leader is available."""


class ElectionNotNeeded(BrokerResponseError, errno=84, retriable=True, invalid_metadata=True):
    """The partition already has the leader that the election would choose."""


class NoReassignmentInProgress(BrokerResponseError, errno=85):
    """The partition is not being reassigned."""


class GroupSubscribedToTopic(BrokerResponseError, errno=86):
    """A member of the group is subscribed to the topic, so its offsets cannot be deleted."""


class InvalidRecord(BrokerResponseError, errno=87):
    """The broker's validation rejected a record; see the record errors in the response."""


class UnstableOffsetCommit(BrokerResponseError, errno=88, retriable=True):
    """An open transaction may change the committed offset when it ends."""


class ThrottlingQuotaExceeded(BrokerResponseError, errno=89, retriable=True):
    """The client exceeds its quota of changes to the cluster (`controller_mutation_rate`)."""


class ProducerFenced(BrokerResponseError, errno=90, is_fatal=True):
    """A newer producer with the same transactional_id has taken over, or the transaction took
    longer than transaction_timeout_ms.
    """

    def __init__(self, msg: str = _FENCED) -> None:
        super().__init__(msg)


class ResourceNotFound(BrokerResponseError, errno=91):
    """The request is about a resource that does not exist."""


class DuplicateResource(BrokerResponseError, errno=92):
    """The request has the same resource twice."""


class UnacceptableCredential(BrokerResponseError, errno=93):
    """The credential does not meet the broker's requirements."""


class InconsistentVoterSet(BrokerResponseError, errno=94):
    """The sender or the recipient is not one of the voters of the quorum."""


class InvalidUpdateVersion(BrokerResponseError, errno=95):
    """The new level of the feature is not valid."""


class FeatureUpdateFailed(BrokerResponseError, errno=96):
    """The levels of the features could not be changed; see the broker's log."""


class PrincipalDeserializationFailure(BrokerResponseError, errno=97):
    """The controller could not decode the principal in a request that a broker forwarded."""


class SnapshotNotFound(BrokerResponseError, errno=98):
    """The requested snapshot does not exist."""


class PositionOutOfRange(BrokerResponseError, errno=99):
    """The requested position is negative, or beyond the end of the snapshot."""


class UnknownTopicId(BrokerResponseError, errno=100, retriable=True, invalid_metadata=True):
    """The broker does not have a topic with this id: it may be new, or deleted (and perhaps created
    again with another id).
    """


class DuplicateBrokerRegistration(BrokerResponseError, errno=101):
    """A broker with this id is registered already."""


class BrokerIdNotRegistered(BrokerResponseError, errno=102):
    """No broker with this id is registered."""


class InconsistentTopicId(BrokerResponseError, errno=103, retriable=True, invalid_metadata=True):
    """The broker has another topic id for this topic than the request: the topic was deleted and
    created again.
    """


class InconsistentClusterId(BrokerResponseError, errno=104):
    """The cluster id in the request is that of another cluster."""


class TransactionalIdNotFound(BrokerResponseError, errno=105):
    """The coordinator does not know the transactional id."""


class FetchSessionTopicIdError(BrokerResponseError, errno=106, retriable=True):
    """The requests of the fetch session do not use topic ids consistently."""


class IneligibleReplica(BrokerResponseError, errno=107):
    """The replica cannot join the in-sync replicas now."""


class NewLeaderElected(BrokerResponseError, errno=108):
    """The change has made another replica the leader of the partition."""


class OffsetMovedToTieredStorage(BrokerResponseError, errno=109):
    """The record at this offset is only in tiered storage now."""


class FencedMemberEpoch(BrokerResponseError, errno=110):
    """The coordinator has fenced the epoch of this member: the member has to drop its partitions
    and join again.
    """


class UnreleasedInstanceId(BrokerResponseError, errno=111):
    """Another member still uses the group_instance_id: first it has to leave the group, or its
    session has to expire.
    """


class UnsupportedAssignor(BrokerResponseError, errno=112):
    """The group does not support the requested assignor (`group_remote_assignor`)."""


class StaleMemberEpoch(BrokerResponseError, errno=113):
    """The request has an old member epoch; retry with the epoch of the next heartbeat response."""


class MismatchedEndpointType(BrokerResponseError, errno=114):
    """The request is for a broker and was sent to a controller, or the other way round."""


class UnsupportedEndpointType(BrokerResponseError, errno=115):
    """The type of endpoint, broker or controller, is not supported."""


class UnknownControllerId(BrokerResponseError, errno=116):
    """The controller id is not known."""


class UnknownSubscriptionId(BrokerResponseError, errno=117):
    """The client's telemetry subscription is out of date; it has to fetch the current one."""


class TelemetryTooLarge(BrokerResponseError, errno=118):
    """The metrics that the client pushed are larger than the broker's `telemetry.max.bytes`."""


class InvalidRegistration(BrokerResponseError, errno=119):
    """The controller rejected the registration of the broker as invalid."""


class TransactionAbortable(BrokerResponseError, errno=120, requires_abort=True):
    """The transaction cannot be committed; abort it, and begin a new one."""


class InvalidRecordState(BrokerResponseError, errno=121):
    """The state of the record does not allow this acknowledgement."""


class ShareSessionNotFound(BrokerResponseError, errno=122, retriable=True):
    """The broker does not have the share session, or has evicted it."""


class InvalidShareSessionEpoch(BrokerResponseError, errno=123, retriable=True):
    """The epoch of the share session is not the one that the broker expects."""


class FencedStateEpoch(BrokerResponseError, errno=124):
    """The request has an old state epoch of the share group."""


class InvalidVoterKey(BrokerResponseError, errno=125):
    """The key of the voter is not the one that the broker expects."""


class DuplicateVoter(BrokerResponseError, errno=126):
    """The controller is a voter of the quorum already."""


class VoterNotFound(BrokerResponseError, errno=127):
    """The quorum has no such voter."""


class InvalidRegularExpression(BrokerResponseError, errno=128):
    """The subscription pattern is not valid in RE2J, the regular expression syntax of brokers."""


class RebootstrapRequired(BrokerResponseError, errno=129):
    """The client has to connect to its bootstrap servers again (KIP-1102)."""


class StreamsInvalidTopology(BrokerResponseError, errno=130):
    """The topology of the streams group is not valid."""


class StreamsInvalidTopologyEpoch(BrokerResponseError, errno=131):
    """The epoch of the topology is not valid."""


class StreamsTopologyFenced(BrokerResponseError, errno=132):
    """The request has an old topology epoch."""


class ShareSessionLimitReached(BrokerResponseError, errno=133, retriable=True):
    """The broker already has the maximum number of share sessions."""


class GroupDeletionFailed(BrokerResponseError, errno=134):
    """The group could not be deleted; the text has the broker's reason."""


class StreamsTopologyDescriptionUpdateFailed(BrokerResponseError, errno=135):
    """The broker could not store the description of the topology; the text has its reason."""


class ControllerIdNotRegistered(BrokerResponseError, errno=136):
    """The controller id is not registered with the active controller."""


class LogTruncationError(OffsetOutOfRangeError):
    """An unclean leader election has truncated the log below the consumer's position (KIP-320).

    The consumer has read records that are not in the log any more. The logs of the old and the new
    leader are equal up to `divergent_offset`, which is None if unknown. As with
    `OffsetOutOfRangeError`, `args[0]` is a dict with the position of the partition.
    """

    def __init__(
        self, topic_partition: TopicPartition, offset: int, divergent_offset: int | None
    ) -> None:
        super().__init__({topic_partition: offset})
        self.topic_partition = topic_partition
        self.offset = offset
        self.divergent_offset = divergent_offset

    def __str__(self) -> str:
        known = self.divergent_offset
        common = "an unknown offset" if known is None else f"offset {known}"
        return (
            f"[Error {self.errno}] LogTruncationError: {self.topic_partition} was truncated: the "
            f"position was {self.offset}, the log that was read agrees with the leader's only up "
            f"to {common}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic_partition, self.offset, self.divergent_offset)


# Kafka's current names of errors that have another name in aiokafka 0.14.
CorruptRecordError = CorruptRecordException
InvalidMessageError = CorruptRecordException
NotLeaderOrFollowerError = NotLeaderForPartitionError
NetworkError = StaleLeaderEpochCodeError
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError
FencedInstanceIdError = FencedInstanceId


def for_partition(
    error: type[BrokerResponseError], tp: TopicPartition, what: str = ""
) -> BrokerResponseError:
    """Return an instance of `error` whose text is the partition and `what`.

    For TopicAuthorizationFailedError, the text is only the topic.
    """
    if error is TopicAuthorizationFailedError:
        return error(tp.topic)
    return error(f"{tp}: {what}" if what else tp)


ErrorT = TypeVar("ErrorT", bound=BaseException)


def renewed(error: ErrorT) -> ErrorT | KafkaError:
    """Return a copy of an exception, for an exception that is raised in several tasks or
    repeatedly: each `raise` of the same object adds to its traceback.

    If the exception cannot be copied, return a KafkaError with its name and text.
    """
    import copy

    try:
        twin = copy.copy(error)
    except Exception:
        # `copy` calls the constructor with `args`; this constructor takes other arguments.
        return _described(error)
    if twin is error or type(twin) is not type(error):
        return _described(error)
    # Copy the attributes that a custom `__reduce__` omits.
    vars(twin).update(vars(error))
    twin.__traceback__ = None
    twin.__cause__ = error.__cause__
    return twin


def _described(error: BaseException) -> KafkaError:
    described = KafkaError(f"{type(error).__name__}: {error}")
    described.__cause__ = error.__cause__
    return described


__all__ = [
    "AdminItemsError",
    "AuthenticationFailedError",
    "AuthenticationMethodNotSupported",
    "BrokerIdNotRegistered",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "Cancelled",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "ConcurrentTransactions",
    "ConsumerStoppedError",
    "ControllerIdNotRegistered",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorrelationIdError",
    "CorruptRecordError",
    "CorruptRecordException",
    "DelegationTokenAuthDisabled",
    "DelegationTokenAuthorizationFailed",
    "DelegationTokenExpired",
    "DelegationTokenNotFound",
    "DelegationTokenOwnerMismatch",
    "DelegationTokenRequestNotAllowed",
    "DuplicateBrokerRegistration",
    "DuplicateResource",
    "DuplicateSequenceNumber",
    "DuplicateVoter",
    "ElectionNotNeeded",
    "EligibleLeadersNotAvailable",
    "FeatureUpdateFailed",
    "FencedInstanceId",
    "FencedInstanceIdError",
    "FencedLeaderEpoch",
    "FencedMemberEpoch",
    "FencedStateEpoch",
    "FetchSessionIdNotFound",
    "FetchSessionTopicIdError",
    "GroupAuthorizationFailedError",
    "GroupCoordinatorNotAvailableError",
    "GroupDeletionFailed",
    "GroupIdNotFound",
    "GroupLoadInProgressError",
    "GroupMaxSizeReached",
    "GroupSubscribedToTopic",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IllegalOperation",
    "IllegalSaslStateError",
    "IllegalStateError",
    "IncompatibleBrokerVersion",
    "InconsistentClusterId",
    "InconsistentGroupProtocolError",
    "InconsistentTopicId",
    "InconsistentVoterSet",
    "IneligibleReplica",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigurationError",
    "InvalidFetchRequestError",
    "InvalidFetchSessionEpoch",
    "InvalidGroupIdError",
    "InvalidMessageError",
    "InvalidPartitionsError",
    "InvalidPrincipalType",
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidRecord",
    "InvalidRecordState",
    "InvalidRegistration",
    "InvalidRegularExpression",
    "InvalidReplicationAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidShareSessionEpoch",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeout",
    "InvalidTxnState",
    "InvalidUpdateVersion",
    "InvalidVoterKey",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "KafkaUnavailableError",
    "KafkaUnreachableError",
    "LeaderNotAvailableError",
    "ListenerNotFound",
    "LogDirNotFound",
    "LogTruncationError",
    "MemberIdRequired",
    "MessageSizeTooLargeError",
    "MetadataEmptyBrokerList",
    "MismatchedEndpointType",
    "NetworkError",
    "NewLeaderElected",
    "NoBrokersAvailable",
    "NoError",
    "NoOffsetForPartitionError",
    "NoReassignmentInProgress",
    "NodeNotReadyError",
    "NonEmptyGroup",
    "NotControllerError",
    "NotCoordinatorError",
    "NotCoordinatorForGroupError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderForPartitionError",
    "NotLeaderOrFollowerError",
    "OffsetMetadataTooLargeError",
    "OffsetMovedToTieredStorage",
    "OffsetNotAvailable",
    "OffsetOutOfRangeError",
    "OperationNotAttempted",
    "OutOfOrderSequenceNumber",
    "PolicyViolationError",
    "PositionOutOfRange",
    "PreferredLeaderNotAvailable",
    "PrincipalDeserializationFailure",
    "ProducerClosed",
    "ProducerFenced",
    "QuotaViolationError",
    "ReassignmentInProgress",
    "RebalanceInProgressError",
    "RebootstrapRequired",
    "RecordDeserializationError",
    "RecordListTooLargeError",
    "RecordTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "ResourceNotFound",
    "SaslAuthenticationFailed",
    "SecurityDisabled",
    "ShareSessionLimitReached",
    "ShareSessionNotFound",
    "SnapshotNotFound",
    "StaleBrokerEpoch",
    "StaleControllerEpochError",
    "StaleLeaderEpochCodeError",
    "StaleMemberEpoch",
    "StaleMetadata",
    "StreamsInvalidTopology",
    "StreamsInvalidTopologyEpoch",
    "StreamsTopologyDescriptionUpdateFailed",
    "StreamsTopologyFenced",
    "TelemetryTooLarge",
    "ThrottlingQuotaExceeded",
    "TooManyInFlightRequests",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicDeletionDisabled",
    "TransactionAbortable",
    "TransactionCoordinatorFenced",
    "TransactionStateError",
    "TransactionalIdAuthorizationFailed",
    "TransactionalIdNotFound",
    "UnacceptableCredential",
    "UnknownControllerId",
    "UnknownError",
    "UnknownLeaderEpoch",
    "UnknownMemberIdError",
    "UnknownProducerId",
    "UnknownSubscriptionId",
    "UnknownTopicId",
    "UnknownTopicOrPartitionError",
    "UnrecognizedBrokerVersion",
    "UnreleasedInstanceId",
    "UnstableOffsetCommit",
    "UnsupportedAssignor",
    "UnsupportedCodecError",
    "UnsupportedCompressionType",
    "UnsupportedEndpointType",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "VoterNotFound",
    "WrongArgument",
    "for_code",
    "for_partition",
    "kafka_errors",
    "renewed",
]
