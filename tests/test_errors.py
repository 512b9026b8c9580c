"""The error classes: codes, attributes, texts, and that they survive copies and pickles."""

from __future__ import annotations

import copy
import pickle

import pytest

import aiokafka
from aiokafka import errors
from aiokafka.structs import ConsumerRecord, TopicPartition

NEWEST_CODE = 136  # Kafka 4.4

# Name, retriable, invalid_metadata of codes where users or clients rely on them.
KNOWN = [
    (-1, "UnknownError", False, False),
    (1, "OffsetOutOfRangeError", False, False),
    (2, "CorruptRecordException", True, False),
    (3, "UnknownTopicOrPartitionError", True, True),
    (5, "LeaderNotAvailableError", True, True),
    (6, "NotLeaderForPartitionError", True, True),
    (7, "RequestTimedOutError", True, False),
    (10, "MessageSizeTooLargeError", False, False),
    (14, "GroupLoadInProgressError", True, False),
    (15, "GroupCoordinatorNotAvailableError", True, False),
    (16, "NotCoordinatorForGroupError", True, False),
    (19, "NotEnoughReplicasError", True, False),
    (22, "IllegalGenerationError", False, False),
    (29, "TopicAuthorizationFailedError", False, False),
    (36, "TopicAlreadyExistsError", False, False),
    (41, "NotControllerError", True, False),
    (45, "OutOfOrderSequenceNumber", False, False),
    (51, "ConcurrentTransactions", True, False),
    (56, "KafkaStorageError", True, True),
    (70, "FetchSessionIdNotFound", True, False),
    (74, "FencedLeaderEpoch", True, True),
    (75, "UnknownLeaderEpoch", True, False),
    (78, "OffsetNotAvailable", True, False),
    (79, "MemberIdRequired", False, False),
    (88, "UnstableOffsetCommit", True, False),
    (89, "ThrottlingQuotaExceeded", True, False),
    (90, "ProducerFenced", False, False),
    (100, "UnknownTopicId", True, True),
    (120, "TransactionAbortable", False, False),
    (129, "RebootstrapRequired", False, False),
]


@pytest.mark.parametrize(("code", "name", "retriable", "invalid_metadata"), KNOWN)
def test_code_has_its_class(code: int, name: str, retriable: bool, invalid_metadata: bool) -> None:
    found = errors.for_code(code)
    assert found is getattr(errors, name)
    assert found.__name__ == name
    assert found.errno == code
    assert found.retriable is retriable
    assert found.invalid_metadata is invalid_metadata
    assert errors.kafka_errors[code] is found


def test_every_code_up_to_the_newest_has_a_class() -> None:
    assert sorted(errors.kafka_errors) == list(range(-1, NEWEST_CODE + 1))
    for code, found in errors.kafka_errors.items():
        assert issubclass(found, errors.BrokerResponseError)
        assert found.errno == code
        assert found.description.endswith((".", ")"))
        assert found.message == found.message.upper()
        assert found.__name__ in errors.__all__


def test_zero_is_no_error() -> None:
    assert errors.for_code(0) is errors.NoError


def test_unknown_code_keeps_its_number() -> None:
    found = errors.for_code(4711)
    assert issubclass(found, errors.UnknownError)
    assert found.errno == 4711
    assert found is errors.for_code(4711)
    assert not found.retriable
    assert str(found("from the broker")).startswith("[Error 4711] UnknownError: from the broker. ")
    restored = pickle.loads(pickle.dumps(found("from the broker")))
    assert type(restored) is found
    assert restored.args == ("from the broker",)


def test_texts() -> None:
    assert str(errors.KafkaError("x")) == "KafkaError: x"
    assert str(errors.KafkaError()) == "KafkaError"
    assert str(errors.CommitFailedError()).startswith("CommitFailedError: Commit cannot be")
    # With these words Faust goes on, without them it crashes: only a refusal that is due to a
    # rebalance contains them.
    assert "already rebalanced" not in str(errors.CommitFailedError("t-0"))
    assert "transactional_id" in str(errors.ProducerFenced())


MEANING = "The partition has no leader at the moment; an election is probably going on."


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), f"[Error 5] LeaderNotAvailableError: {MEANING}"),
        (("t-0",), f"[Error 5] LeaderNotAvailableError: t-0. {MEANING}"),
        (("t-0.",), f"[Error 5] LeaderNotAvailableError: t-0. {MEANING}"),
        ((f"t-0: {MEANING}",), f"[Error 5] LeaderNotAvailableError: t-0: {MEANING}"),
    ],
)
def test_the_text_ends_with_what_the_code_means(args: tuple[str, ...], text: str) -> None:
    assert str(errors.LeaderNotAvailableError(*args)) == text


def test_a_fenced_producer_is_told_once_why() -> None:
    assert str(errors.ProducerFenced()).count("a newer producer") == 1
    assert str(errors.ProducerFenced("InitProducerId of 'tx'")).endswith(
        errors.ProducerFenced.description
    )


# Where a setting of the broker or of the topic decides, the text names it.
SETTINGS = [
    (10, "max.message.bytes", "max_request_size"),
    (12, "offset.metadata.max.bytes", ""),
    (18, "segment.bytes", ""),
    (19, "min.insync.replicas", ""),
    (20, "min.insync.replicas", ""),
    (25, "session_timeout_ms", "max_poll_interval_ms"),
    (26, "group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    (29, "ACL", "READ"),
    (30, "ACL", "READ"),
    (32, "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
    (44, "create.topic.policy.class.name", ""),
    (49, "transactional.id.expiration.ms", ""),
    (50, "transaction.max.timeout.ms", "transaction_timeout_ms"),
    (53, "ACL", "WRITE"),
    (73, "delete.topic.enable", ""),
    (81, "group.max.size", ""),
    (82, "group_instance_id", ""),
    (89, "controller_mutation_rate", ""),
]


@pytest.mark.parametrize(("code", "one", "other"), SETTINGS)
def test_the_text_names_the_setting_that_decides(code: int, one: str, other: str) -> None:
    text = str(errors.for_code(code)("what was asked"))
    assert "what was asked" in text
    assert one in text
    assert other in text


def test_aliases_are_the_same_classes() -> None:
    assert errors.InvalidMessageError is errors.CorruptRecordException
    assert errors.CorruptRecordError is errors.CorruptRecordException
    assert errors.CoordinatorLoadInProgressError is errors.GroupLoadInProgressError
    assert errors.CoordinatorNotAvailableError is errors.GroupCoordinatorNotAvailableError
    assert errors.NotCoordinatorError is errors.NotCoordinatorForGroupError


def test_bases() -> None:
    assert issubclass(errors.KafkaError, RuntimeError)
    assert not issubclass(errors.ConsumerStoppedError, errors.KafkaError)
    assert not issubclass(errors.IllegalOperation, errors.KafkaError)
    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type) and found not in (
            errors.ConsumerStoppedError,
            errors.IllegalOperation,
        ):
            assert issubclass(found, errors.KafkaError), name


@pytest.mark.parametrize(
    "caught", [errors.IllegalOperation, errors.KafkaError, AssertionError, RuntimeError]
)
def test_wrong_transaction_state_is_caught_in_every_way(caught: type[Exception]) -> None:
    with pytest.raises(caught):
        raise errors.TransactionStateError("no transaction is open")


def test_connection_errors_are_retriable() -> None:
    for found in (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.NoBrokersAvailable):
        assert found.retriable
    assert errors.KafkaConnectionError.invalid_metadata
    assert not errors.AuthenticationFailedError.retriable
    assert errors.AuthenticationFailedError.is_fatal


def test_remedy_of_a_producer() -> None:
    assert errors.TransactionAbortable.requires_abort
    assert not errors.TransactionAbortable.is_fatal
    assert errors.ProducerFenced.is_fatal
    # Of a transaction that took too long; a producer that was replaced learns it from the abort.
    assert errors.InvalidProducerEpoch.requires_abort
    assert not errors.InvalidProducerEpoch.is_fatal
    assert not errors.NotLeaderForPartitionError.is_fatal


def make_record() -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("t", 1, 42, 1000, 0, b"k", b"not json", None, 1, 8, ())


def test_deserialization_error_carries_the_raw_record() -> None:
    tp = TopicPartition("t", 1)
    cause = ValueError("not json")
    error = errors.RecordDeserializationError(tp, 42, make_record(), cause, "value")
    assert (error.topic_partition, error.offset, error.part) == (tp, 42, "value")
    assert error.record.value == b"not json"
    assert error.cause is cause
    assert error.__cause__ is cause
    assert "seek to 43" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.KafkaError("x"),
        errors.RequestTimedOutError("x"),
        errors.CommitFailedError("x"),
        errors.ProducerFenced(),
        errors.KafkaUnreachableError(("Broker 1",), 1500.0, errors.KafkaConnectionError("x")),
        errors.LogTruncationError(TopicPartition("t", 0), 10, 7),
        errors.RecordDeserializationError(
            TopicPartition("t", 1), 42, make_record(), ValueError("x")
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickle_and_copy(error: errors.KafkaError) -> None:
    for restored in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(restored) is type(error)
        assert str(restored) == str(error)
        assert vars(restored).keys() == vars(error).keys()


def test_a_class_of_a_program_says_what_it_means() -> None:
    class Own(errors.BrokerResponseError):
        errno = 999
        message = "OWN"
        description = "The program knows why."

    assert (Own.errno, Own.message, Own.description) == (999, "OWN", "The program knows why.")
    assert str(Own()) == "[Error 999] Own: The program knows why."


def test_a_code_cannot_be_taken_twice() -> None:
    with pytest.raises(TypeError, match="error code 7 is already RequestTimedOutError"):
        type("Other", (errors.BrokerResponseError,), {}, errno=7)


def test_truncation_is_caught_as_offset_out_of_range() -> None:
    error = errors.LogTruncationError(TopicPartition("t", 0), 10, None)
    assert isinstance(error, errors.OffsetOutOfRangeError)
    assert error.divergent_offset is None
    assert error.args[0] == {TopicPartition("t", 0): 10}
    assert "only up to an unknown offset" in str(error)


def test_errors_are_reached_through_the_package() -> None:
    assert aiokafka.errors is errors
    assert aiokafka.ConsumerStoppedError is errors.ConsumerStoppedError
