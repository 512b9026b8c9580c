"""Create, describe, change and delete topics (`admin.topics`)."""

from __future__ import annotations

import fnmatch
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka._arguments import (
    as_enum,
    as_flag,
    as_int,
    as_list,
    as_names,
    as_partitions,
    as_text,
    by_partition,
    items_of,
)
from aiokafka.admin._items import GONE, by_node, settle
from aiokafka.admin._replicas import (
    Reassignment,
    elect_all,
    elect_each,
    list_reassignments,
    reassign_each,
)
from aiokafka.admin._routing import (
    AdminApi,
    Call,
    Outcomes,
    Router,
    error_of,
    fetch_metadata,
    metadata_of,
    remaining_ms,
)
from aiokafka.admin._values import Value, or_none, uuid_of
from aiokafka.admin.configs import (
    ConfigChange,
    ConfigKey,
    ConfigSetting,
    Plain,
    alter_configs,
    describe_configs,
    text_of,
)
from aiokafka.admin.enums import (
    AclOperation,
    ConfigSource,
    ElectionType,
    TopicAction,
    operations_of,
)
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.errors import (
    IllegalArgumentError,
    InconsistentTopicId,
    KafkaError,
    KafkaProtocolError,
    LeaderNotAvailableError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import metadata as old
from aiokafka.protocol.messages import topics as wire
from aiokafka.protocol.messages.metadata import MetadataResponseTopic
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import TopicPartition

__all__ = [
    "DeclaredTopic",
    "PartitionDescription",
    "TopicCreation",
    "TopicDescription",
    "TopicListing",
    "TopicSetting",
    "TopicStep",
    "Topics",
]


# -- Values


@dataclass(frozen=True)
class TopicListing(Value):
    """A topic without the details of its partitions."""

    name: str
    topic_id: uuid.UUID | None
    """None before Kafka 2.8."""
    is_internal: bool
    """Whether Kafka stores its own state in the topic."""
    partitions: int
    """Number of partitions."""
    replication_factor: int
    """The number of replicas of a partition; the largest one if partitions differ."""


@dataclass(frozen=True)
class PartitionDescription(Value):
    """The leader and the replicas of a partition, as broker ids."""

    partition: int
    leader: int | None
    """None while the partition has no leader."""
    leader_epoch: int | None
    """Grows with every leader change; None before Kafka 2.1."""
    replicas: tuple[int, ...]
    """All replicas, the preferred leader first."""
    isr: tuple[int, ...]
    """The in-sync replicas."""
    offline_replicas: tuple[int, ...]
    """Replicas on failed brokers or disks. Empty before Kafka 1.0."""
    eligible_leader_replicas: tuple[int, ...] | None = None
    """Replicas that are not in sync and still have all committed records (KIP-966). None before
    Kafka 3.7."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None
    """The last eligible replicas, if the partition has no eligible replicas now (KIP-966)."""


@dataclass(frozen=True)
class TopicDescription(Value):
    """A topic with its partitions."""

    name: str
    topic_id: uuid.UUID | None
    """None before Kafka 2.8."""
    is_internal: bool
    """Whether Kafka stores its own state in the topic."""
    partitions: tuple[PartitionDescription, ...]
    """The partitions, sorted by number."""
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the user may do with the topic; None unless requested, and before Kafka
    2.3."""


@dataclass(frozen=True)
class TopicSetting(Value):
    """A setting of a new topic, with its value and the source of the value."""

    value: str | None
    """None if the setting is sensitive."""
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool


@dataclass(frozen=True)
class TopicCreation(Value):
    """A topic that was created, or that was only checked because of `validate_only` (KIP-525).

    All fields are None before Kafka 2.4.
    """

    topic_id: uuid.UUID | None
    """None before Kafka 2.8, and with `validate_only`."""
    num_partitions: int | None
    """None if the user may not describe the topic's configuration."""
    replication_factor: int | None
    """None if the user may not describe the topic's configuration."""
    configs: Mapping[str, TopicSetting] | None
    """All settings by name, defaults included; None if the user may not describe them."""


class Topics(AdminApi):
    """The sub-client `admin.topics`, for topics.

    Topics are given by name; some methods also accept the id of a topic as a `uuid.UUID`.
    """

    async def list(
        self,
        pattern: str | re.Pattern[str] | None = None,
        *,
        include_internal: bool = False,
        timeout_ms: float | None = None,
    ) -> list[TopicListing]:
        """Return the topics that the user may describe, sorted by name (Java: listTopics).

        Args:
            pattern: a shell pattern such as `orders-*`, or a compiled regular expression, that the
                whole name must match; by default all topics are returned.
            include_internal: also return topics in which Kafka stores its own state.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        if isinstance(pattern, str):
            pattern = re.compile(fnmatch.translate(pattern))
        elif not isinstance(pattern, re.Pattern | None):
            raise TypeError(f"pattern={pattern!r}: must be a str or a compiled expression")
        with_internal = as_flag("include_internal", include_internal)
        response = await fetch_metadata(self._router, None, self._deadline(timeout_ms))
        found = [
            TopicListing(
                name=str(topic.name),
                topic_id=uuid_of(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=len(topic.partitions),
                replication_factor=max((len(p.replica_nodes) for p in topic.partitions), default=0),
            )
            for topic in response.topics
            if (with_internal or not topic.is_internal)
            and (pattern is None or pattern.fullmatch(str(topic.name)))
        ]
        return sorted(found, key=lambda topic: topic.name)

    async def describe(
        self,
        topics: Iterable[str | uuid.UUID] | None = None,
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str | uuid.UUID, TopicDescription]:
        """Return partitions, leaders and replicas of topics (Java: describeTopics, KIP-966).

        Args:
            topics: names or ids (Kafka 3.1); by default all topics, internal topics included.
            include_authorized_operations: also return the operations that the user may do with
                each topic (KIP-430).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        No topic is created. Eligible leader replicas need Kafka 3.7. Raises
        UnknownTopicOrPartitionError for a name, UnknownTopicId for an id; AdminItemsError if one of
        several topics fails.
        """
        wanted = None if topics is None else _topics("topics", topics)
        operations = as_flag("include_authorized_operations", include_authorized_operations)
        deadline = self._deadline(timeout_ms)
        if wanted is None:
            return dict((await describe_all_topics(self._router, operations, deadline)).items())
        return await describe_topics(self._router, wanted, operations, deadline)

    async def create(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, TopicCreation]:
        """Create topics, and return the properties of each topic (Java: createTopics, KIP-525).

        Args:
            topics: the topics to create.
            validate_only: only check whether the topics could be created (Kafka 0.10.2).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The controller responds before the other brokers know the topics: see `wait_until_ready`. If
        the user's quota of changes is exhausted (KIP-599), the remaining topics are sent again
        later. Raises the error of a single topic, such as InvalidReplicationFactorError or
        TopicAlreadyExistsError (also if the response to a first attempt was lost); AdminItemsError
        if one of several topics fails.
        """
        wanted = as_new_topics("topics", topics)
        names = [topic.name for topic in wanted]
        if len(set(names)) < len(names):
            raise ValueError(f"topics: each may be given once, not {names}")
        is_check = as_flag("validate_only", validate_only)
        return await create_topics(self._router, wanted, is_check, self._deadline(timeout_ms))

    async def delete(
        self, topics: Iterable[str | uuid.UUID], *, timeout_ms: float | None = None
    ) -> None:
        """Delete topics with all their records (Java: deleteTopics; by id: Kafka 2.8).

        Raises the error of a single topic, such as TopicDeletionDisabled, UnknownTopicId or
        UnknownTopicOrPartitionError (also if the response to a first attempt was lost);
        AdminItemsError if one of several topics fails.
        """
        wanted = _topics("topics", topics)
        await delete_topics(self._router, wanted, self._deadline(timeout_ms))

    async def create_partitions(
        self,
        topics: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Add partitions to topics (Java: createPartitions, KIP-195, Kafka 1.0).

        Args:
            topics: by name, the new total number of partitions, or a `NewPartitions` to choose the
                replicas as well.
            validate_only: only check whether the partitions could be added.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        With more partitions, the partitioner assigns many keys to other partitions than before.
        Raises the error of a single topic, such as InvalidPartitionsError if the topic already has
        that many partitions (also if the response to a first attempt was lost); AdminItemsError if
        one of several topics fails.
        """
        wanted = as_new_partitions("topics", topics)
        is_check = as_flag("validate_only", validate_only)
        await create_partitions(self._router, wanted, is_check, self._deadline(timeout_ms))

    async def wait_until_ready(
        self, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Wait until every broker knows all partitions of these topics, each with a leader.

        Topics are given by name, and need not exist yet. After the timeout, raises
        KafkaTimeoutError with the reason; AdminItemsError if one of several topics fails.
        """
        names = as_names("topics", topics)
        deadline = self._deadline(timeout_ms)

        async def ask(left: list[str]) -> Outcomes[str, bool]:
            cluster = await fetch_metadata(self._router, [], deadline)
            nodes = [broker.node_id for broker in cluster.brokers]
            views = await by_node(
                {node: [(node, name) for name in left] for node in nodes},
                lambda node, items: _view(
                    self._router, node, [name for _, name in items], deadline
                ),
            )
            return {
                name: _is_ready({node: views[node, name] for node in nodes}, name) for name in left
            }

        await settle(self._router, names, ask, deadline)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders of partitions (Java: electLeaders, KIP-460, Kafka 2.2).

        Args:
            partitions: the partitions; by default all. The result for all partitions omits
                partitions for which no election was needed.
            election_type: PREFERRED elects the preferred replica (the first one). UNCLEAN elects,
                for a partition without a leader, a replica that is not in sync, which may lose
                records (Kafka 2.4).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns True for a partition with a new leader, False if no election was needed. Raises
        PreferredLeaderNotAvailable if the preferred replica is offline or not in sync, and
        EligibleLeadersNotAvailable if no replica can be elected; AdminItemsError if one of several
        partitions fails.
        """
        kind = as_enum("election_type", election_type, ElectionType)
        if partitions is None:
            deadline = self._deadline(timeout_ms)
            return await elect_all(self._router, kind, deadline)
        wanted = as_partitions("partitions", partitions)
        return await elect_each(self._router, wanted, kind, self._deadline(timeout_ms))

    async def reassign(
        self,
        moves: Mapping[TopicPartition, Sequence[int]],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Start to move partitions to other brokers (Java: alterPartitionReassignments, KIP-455).

        Args:
            moves: by partition, the broker ids of its new replicas, the preferred leader first.
            allow_replication_factor_change: False rejects a move that changes the number of
                replicas (KIP-860, Kafka 4.1).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The call returns before brokers have copied the replicas: see `reassignments`. A new move
        replaces an unfinished one. Raises the error of a single partition, such as
        InvalidReplicationAssignmentError; AdminItemsError if one of several partitions fails. Needs
        Kafka 2.4.
        """
        wanted = {}
        for tp, given in by_partition("moves", moves):
            what = f"moves: {tp}"
            brokers = [as_int(what, each) for each in as_list(what, given, "brokers")]
            if not brokers or len(set(brokers)) < len(brokers):
                raise ValueError(f"{what}: {brokers}: must be one broker or more, each once")
            wanted[tp] = brokers
        may_change = as_flag("allow_replication_factor_change", allow_replication_factor_change)
        await reassign_each(self._router, wanted, may_change, self._deadline(timeout_ms))

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Cancel unfinished moves of partitions (KIP-455).

        Raises NoReassignmentInProgress for a partition that is not being moved (also if the
        response to a first attempt was lost); AdminItemsError if one of several partitions fails.
        """
        wanted = dict.fromkeys(as_partitions("partitions", partitions))
        await reassign_each(self._router, wanted, True, self._deadline(timeout_ms))

    async def reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Reassignment]:
        """Return the unfinished moves (Java: listPartitionReassignments, KIP-455).

        Args:
            partitions: the partitions; by default all. The result omits partitions that are not
                being moved.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = None if partitions is None else as_partitions("partitions", partitions)
        return await list_reassignments(self._router, wanted, self._deadline(timeout_ms))

    async def apply(
        self,
        declared: Mapping[str, DeclaredTopic | Mapping[str, Any] | None],
        *,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> Sequence[TopicStep]:
        """Change topics to a declared state, and return the steps of the change.

        Args:
            declared: by name, the wanted state of a topic as a `DeclaredTopic` or a dict with its
                fields; None to delete the topic. Other topics are not changed.
            dry_run: change nothing, only return the steps.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The order of the steps is: create topics, add partitions, change settings, delete topics.
        Raises IllegalArgumentError before the first step if `declared` has fewer partitions or
        another replication factor for an existing topic. If a step fails, raises its error; the
        later steps are not done, and the call can be repeated. If the response to a step is lost,
        the step is sent again, and may fail because the first attempt has made the change
        (TopicAlreadyExistsError). Changing settings needs Kafka 2.3.
        """
        wanted, is_dry = _declared_topics(declared), as_flag("dry_run", dry_run)
        deadline = self._deadline(timeout_ms)
        steps = await _plan(self._router, wanted, deadline)
        if not is_dry:
            await _carry_out(self._router, steps, deadline)
        return steps


def _topics(argument: str, topics: Iterable[str | uuid.UUID]) -> Collection[str | uuid.UUID]:
    """Return the topics without repeats. Raises TypeError for a single topic, and for an item that
    is neither a str nor a UUID."""
    wanted = as_list(argument, topics, "topics", uuid.UUID)
    for topic in wanted:
        if not isinstance(topic, str | uuid.UUID):
            raise TypeError(f"{argument}: {topic!r}: must be a name, or an id as a uuid.UUID")
    return dict.fromkeys(wanted)


# -- CreateTopics, DeleteTopics, CreatePartitions


def as_new_topics(argument: str, values: Iterable[NewTopic]) -> list[NewTopic]:
    """Return the topics as a list. Raises TypeError for a single topic, and for an item that is no
    NewTopic."""
    topics = as_list(argument, values, "topics", NewTopic)
    for topic in topics:
        # The NewTopic class of another library is accepted as well.
        if not hasattr(topic, "num_partitions"):
            raise TypeError(f"{argument}: must be NewTopic objects, not {topic!r}")
        as_text(f"{argument}: name", topic.name)
    return topics


def as_new_partitions(
    argument: str, values: Mapping[str, NewPartitions | int]
) -> dict[str, NewPartitions | int]:
    """Return the new numbers of partitions by topic. Raises TypeError for another value than an int
    or a NewPartitions."""
    found = dict(items_of(argument, values))
    for name, new in found.items():
        as_text(f"{argument}: name", name)
        # The NewPartitions class of another library is accepted as well.
        if not hasattr(new, "total_count"):
            accepted = "an integer or a NewPartitions"
            found[name] = as_int(f"{argument}: {name}", new, accepted=accepted)
    return found


Topic = str | uuid.UUID
_FIRST_WITH_DEFAULTS = 4


async def create_topics(
    router: Router, topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> dict[str, TopicCreation]:
    """Create topics; with `validate_only`, only check whether they could be created."""
    wanted = {topic.name: topic for topic in topics}

    async def ask(left: list[str]) -> Outcomes[str, TopicCreation]:
        def build(version: int) -> wire.CreateTopicsRequest:
            chosen = [wanted[name] for name in left]
            return create_request(version, chosen, validate_only, deadline)

        response = await router.to_controller(Call(wire.CreateTopicsRequest, build), deadline)
        return {
            each.name: error_of(each.error_code, each.error_message, each.name) or _creation(each)
            for each in response.topics
        }

    return await settle(router, wanted, ask, deadline)


def create_request(
    version: int, topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> wire.CreateTopicsRequest:
    """Return a CreateTopicsRequest whose timeout is the time until `deadline`.

    Raises UnsupportedVersionError if a topic does not give its numbers of partitions and replicas,
    and this version cannot use the broker's defaults for them.
    """
    return wire.CreateTopicsRequest(
        topics=[_creatable(topic, version) for topic in topics],
        timeout_ms=remaining_ms(deadline),
        validate_only=validate_only,
    )


def _creatable(topic: NewTopic, version: int) -> wire.CreatableTopic:
    uses_defaults = -1 in (topic.num_partitions, topic.replication_factor)
    if version < _FIRST_WITH_DEFAULTS and uses_defaults and not topic.replica_assignments:
        raise UnsupportedVersionError(
            f"CreateTopics: {topic.name}: to leave the numbers of partitions and replicas to the "
            "brokers needs Kafka 2.4 (KIP-464): give both"
        )
    return wire.CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            wire.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.replica_assignments.items()
        ],
        configs=[
            wire.CreatableTopicConfig(
                name=name, value=None if value is None else text_of(name, value)
            )
            for name, value in topic.topic_configs.items()
        ],
    )


def _creation(topic: wire.CreatableTopicResult) -> TopicCreation:
    configs = None
    if topic.configs and not topic.topic_config_error_code:
        configs = {
            each.name: TopicSetting(
                each.value, ConfigSource(each.config_source), each.is_sensitive, each.read_only
            )
            for each in topic.configs
        }
    return TopicCreation(
        topic_id=uuid_of(topic.topic_id),
        num_partitions=or_none(topic.num_partitions),
        replication_factor=or_none(topic.replication_factor),
        configs=configs,
    )


async def delete_topics(router: Router, topics: Iterable[Topic], deadline: float) -> None:
    async def ask(left: list[Topic]) -> Outcomes[Topic, bool]:
        def build(version: int) -> wire.DeleteTopicsRequest:
            return delete_request(version, left, deadline)

        response = await router.to_controller(Call(wire.DeleteTopicsRequest, build), deadline)
        found: dict[Topic, bool | KafkaError] = {}
        for each in response.responses:
            topic_id = uuid_of(each.topic_id)
            item: Topic = topic_id if topic_id in left else str(each.name)
            found[item] = error_of(each.error_code, each.error_message, item) or True
        return found

    await settle(router, topics, ask, deadline, final=GONE)


def delete_request(
    version: int, topics: Collection[Topic], deadline: float
) -> wire.DeleteTopicsRequest:
    """Return a DeleteTopicsRequest whose timeout is the time until `deadline`."""
    timeout_ms = remaining_ms(deadline)
    if version >= 6:
        states = [_state(topic) for topic in topics]
        return wire.DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
    names = [topic for topic in topics if isinstance(topic, str)]
    if len(names) < len(topics):
        raise UnsupportedVersionError("DeleteTopics: topics by id need Kafka 2.8")
    return wire.DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)


def _state(topic: Topic) -> wire.DeleteTopicState:
    if isinstance(topic, uuid.UUID):
        return wire.DeleteTopicState(name=None, topic_id=topic.bytes)
    return wire.DeleteTopicState(name=topic, topic_id=ZERO_UUID)


async def create_partitions(
    router: Router,
    topics: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> None:
    """Add partitions to topics; with `validate_only`, only check whether they could be added."""
    wanted = dict(topics.items())

    async def ask(left: list[str]) -> Outcomes[str, bool]:
        def build(version: int) -> wire.CreatePartitionsRequest:
            chosen = {name: wanted[name] for name in left}
            return partitions_request(chosen, validate_only, deadline)

        response = await router.to_controller(Call(wire.CreatePartitionsRequest, build), deadline)
        return {
            each.name: error_of(each.error_code, each.error_message, each.name) or True
            for each in response.results
        }

    await settle(router, wanted, ask, deadline, final=GONE)


def partitions_request(
    topics: Mapping[str, NewPartitions | int], validate_only: bool, deadline: float
) -> wire.CreatePartitionsRequest:
    """Return a CreatePartitionsRequest whose timeout is the time until `deadline`."""
    return wire.CreatePartitionsRequest(
        topics=[_with_partitions(name, new) for name, new in topics.items()],
        timeout_ms=remaining_ms(deadline),
        validate_only=validate_only,
    )


def _with_partitions(name: str, new: NewPartitions | int) -> wire.CreatePartitionsTopic:
    new = NewPartitions(new) if isinstance(new, int) else new
    assignments = None
    if new.new_assignments is not None:
        assignments = [
            wire.CreatePartitionsAssignment(broker_ids=list(b)) for b in new.new_assignments
        ]
    return wire.CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments)


# -- DescribeTopicPartitions (KIP-966), or Metadata before Kafka 3.7

_FINAL = (*GONE, KafkaProtocolError)
_FIRST_WITH_IDS = 12  # version of Metadata that accepts an id without a name

Found = dict[str, TopicDescription | KafkaError]


async def describe_topics(
    router: Router, topics: Iterable[Topic], operations: bool, deadline: float
) -> dict[Topic, TopicDescription]:
    async def ask(left: list[Topic]) -> Outcomes[Topic, TopicDescription]:
        ids = [topic for topic in left if isinstance(topic, uuid.UUID)]
        names = await _names_of(router, ids, deadline) if ids else {}
        wanted = [topic for topic in left if isinstance(topic, str)]
        wanted += [name for name in names.values() if isinstance(name, str)]
        wanted = list(dict.fromkeys(wanted))  # the same topic may be given by name and by id
        found = await _by_name(router, wanted, operations, deadline) if wanted else {}
        outcomes: dict[Topic, TopicDescription | KafkaError] = dict(found.items())
        for topic_id, name in names.items():
            described = name if isinstance(name, KafkaError) else found.get(name)
            if isinstance(described, TopicDescription) and described.topic_id != topic_id:
                described = UnknownTopicId(f"{topic_id}: topic {name} has another id now")
            if described is not None:
                outcomes[topic_id] = described
        return outcomes

    return await settle(router, topics, ask, deadline, final=_FINAL)


async def describe_all_topics(
    router: Router, operations: bool, deadline: float
) -> dict[str, TopicDescription]:
    """Describe all topics, sorted by name. Topics with an error are omitted."""

    async def ask(left: list[None]) -> Outcomes[None, Found]:
        found = await _by_name(router, None, operations, deadline)
        # If a topic was deleted and created again between two pages, the pages have partitions of
        # different topics. Return this error, which is retriable, so that `settle` reads all pages
        # again. Topics with other errors are omitted.
        mixed = [each for each in found.values() if isinstance(each, InconsistentTopicId)]
        return {None: mixed[0] if mixed else found}

    found = (await settle(router, [None], ask, deadline, final=_FINAL))[None]
    return {
        name: each for name, each in sorted(found.items()) if isinstance(each, TopicDescription)
    }


async def _names_of(
    router: Router, ids: list[uuid.UUID], deadline: float
) -> dict[uuid.UUID, str | KafkaError]:
    """Return for each topic id the name of its topic, or its error."""

    def build(version: int) -> old.MetadataRequest:
        if version < _FIRST_WITH_IDS:
            raise UnsupportedVersionError("Metadata: topics by id need Kafka 3.1")
        topics = [old.MetadataRequestTopic(topic_id=each.bytes, name=None) for each in ids]
        return old.MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    response = await router.to_two(Call(old.MetadataRequest, build), deadline)
    found: dict[uuid.UUID, str | KafkaError] = {}
    for topic in response.topics:
        topic_id = uuid.UUID(bytes=bytes(topic.topic_id))
        found[topic_id] = error_of(topic.error_code, None, topic_id) or str(topic.name)
    return {each: found.get(each, UnknownTopicId(str(each))) for each in ids}


async def _by_name(
    router: Router, names: list[str] | None, operations: bool, deadline: float
) -> Found:
    """Describe these topics, or all topics with None.

    If a broker does not know a topic, a second broker is queried. Brokers that do not support
    DescribeTopicPartitions get a Metadata request.
    """

    async def ask(names: list[str] | None, until: float, asked: set[int]) -> Found:
        try:
            return await _in_pages(router, names, operations, until, asked)
        except UnsupportedVersionError:
            return await _by_metadata(router, names, operations, until, asked)

    return await router.ask_two(
        ask, names, lambda each: isinstance(each, UnknownTopicOrPartitionError), deadline
    )


async def _in_pages(
    router: Router, names: list[str] | None, operations: bool, deadline: float, asked: set[int]
) -> Found:
    """Describe topics by DescribeTopicPartitions requests, page by page. Each page may come from
    another broker."""
    pages: dict[str, list[wire.DescribeTopicPartitionsResponseTopic]] = {}
    cursor: wire.Cursor | None = None
    while True:

        def build(
            version: int, cursor: wire.Cursor | None = cursor
        ) -> wire.DescribeTopicPartitionsRequest:
            topics = [wire.TopicRequest(name=name) for name in sorted(names or ())]
            return wire.DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)

        call = Call(wire.DescribeTopicPartitionsRequest, build)
        response = await router.to_any(call, deadline, asked if cursor is None else None)
        for topic in response.topics:
            pages.setdefault(str(topic.name), []).append(topic)
        following = response.next_cursor
        if following is None:
            return {name: _merged(parts, operations) for name, parts in pages.items()}
        place = (following.topic_name, following.partition_index)
        if cursor is not None and place <= (cursor.topic_name, cursor.partition_index):
            raise KafkaProtocolError(
                f"DescribeTopicPartitions: the cursor did not advance: {following}"
            )
        cursor = following


def _merged(
    parts: list[wire.DescribeTopicPartitionsResponseTopic], operations: bool
) -> TopicDescription | KafkaError:
    """Return the description of a topic from its parts, one for each page that has the topic.

    Returns the error of a part, or InconsistentTopicId if the parts have different topic ids.
    """
    last = parts[-1]
    for part in parts:
        error = error_of(part.error_code, None, last.name)
        if error is not None:
            return error
        if part.topic_id != last.topic_id:
            return InconsistentTopicId(f"{last.name}: it was created again between two pages")
    found = _topic(last, (_paged(each) for part in parts for each in part.partitions))
    return found if operations else replace(found, authorized_operations=None)


def _paged(each: wire.DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    eligible, last_known = each.eligible_leader_replicas, each.last_known_elr
    return replace(
        _partition(each),
        eligible_leader_replicas=None if eligible is None else tuple(eligible),
        last_known_eligible_leader_replicas=None if last_known is None else tuple(last_known),
    )


async def _by_metadata(
    router: Router, names: list[str] | None, operations: bool, deadline: float, asked: set[int]
) -> Found:
    response = await fetch_metadata(router, names, deadline, operations=operations, asked=asked)
    return {str(topic.name): _described(topic) for topic in response.topics}


def _described(topic: old.MetadataResponseTopic) -> TopicDescription | KafkaError:
    error = error_of(topic.error_code, None, topic.name)
    if error is not None:
        return error
    return _topic(topic, map(_partition, topic.partitions))


def _topic(
    topic: wire.DescribeTopicPartitionsResponseTopic | old.MetadataResponseTopic,
    partitions: Iterable[PartitionDescription],
) -> TopicDescription:
    found = {each.partition: each for each in partitions}
    return TopicDescription(
        name=str(topic.name),
        topic_id=uuid_of(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(found[index] for index in sorted(found)),
        authorized_operations=operations_of(topic.topic_authorized_operations),
    )


def _partition(
    each: wire.DescribeTopicPartitionsResponsePartition | old.MetadataResponsePartition,
) -> PartitionDescription:
    return PartitionDescription(
        partition=each.partition_index,
        leader=or_none(each.leader_id),
        leader_epoch=or_none(each.leader_epoch),
        replicas=tuple(each.replica_nodes),
        isr=tuple(each.isr_nodes),
        offline_replicas=tuple(each.offline_replicas),
    )


# -- Readiness: every broker knows the topic

View = MetadataResponseTopic | KafkaError
"""The metadata that one broker has of a topic, or the broker's error."""


async def _view(
    router: Router, node: int, names: list[str], deadline: float
) -> dict[tuple[int, str], View]:
    response = await metadata_of(router, node, names, deadline)
    return {(node, str(topic.name)): topic for topic in response.topics}


def _is_ready(views: Mapping[int, View], name: str) -> bool | KafkaError:
    """Return True if all brokers know all partitions of a topic, each with a leader.

    Otherwise return a KafkaError with the reason. The error is retriable, unless a broker has
    returned an error that is not retriable.
    """
    if not views:
        return UnknownTopicOrPartitionError(f"{name}: no broker returned metadata")
    known = [len(v.partitions) for v in views.values() if not isinstance(v, KafkaError)]
    most = max(known, default=0)
    for node, view in views.items():
        where = f"{name} in the metadata of node {node}"
        if isinstance(view, KafkaError):
            return view
        error = error_of(view.error_code, None, where)
        if error is not None:
            return error
        if not view.partitions or len(view.partitions) < most:
            return LeaderNotAvailableError(f"{where}: only {len(view.partitions)} partitions yet")
        for partition in view.partitions:
            if partition.leader_id < 0:
                number = partition.partition_index
                return LeaderNotAvailableError(f"{where}: partition {number} has no leader")
    return True


# -- Declared topics: plan the steps, then carry out the steps


@dataclass(frozen=True)
class DeclaredTopic(Value):
    """The wanted state of a topic.

    A field that is None leaves this property of an existing topic unchanged; a new topic gets the
    broker's default.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, Plain] | None = None
    """All settings of the topic. Settings not listed here are reset to their defaults."""


@dataclass(frozen=True)
class TopicStep(Value):
    """A step that changes one topic to its declared state."""

    topic: str
    action: TopicAction
    partitions: int | None = None
    """The number of partitions after CREATE or GROW; None for the broker's default, and for other
    actions."""
    replication_factor: int | None = None
    """The number of replicas for CREATE; None for the broker's default, and for other actions."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    """The settings to set, by name; None as the value resets a setting to its default."""


def _declared_topics(
    topics: Mapping[str, DeclaredTopic | Mapping[str, Any] | None],
) -> dict[str, DeclaredTopic | None]:
    found: dict[str, DeclaredTopic | None] = {}
    for name, given in items_of("declared", topics):
        wanted = _declared(as_text("declared: name", name), given)
        if wanted is not None:
            for key in ("partitions", "replication_factor"):
                number = getattr(wanted, key)
                if number is None:
                    continue
                as_int(f"declared: {name}: {key}", number, 1)
            for key, value in items_of(f"declared: {name}: configs", wanted.configs or {}):
                text_of(f"declared: {name}: {key}", value)
        found[name] = wanted
    return found


def _declared(name: str, given: DeclaredTopic | Mapping[str, Any] | None) -> DeclaredTopic | None:
    if isinstance(given, Mapping):
        known = DeclaredTopic.__dataclass_fields__
        if unknown := sorted(map(str, given.keys() - known.keys())):
            raise TypeError(
                f"declared: {name}: {', '.join(unknown)}: it may have {', '.join(known)}"
            )
        return DeclaredTopic(**given)
    if given is not None and not isinstance(given, DeclaredTopic):
        raise TypeError(f"declared: {name}={given!r}: must be a DeclaredTopic, a dict, or None")
    return given


async def _plan(
    router: Router, declared: Mapping[str, DeclaredTopic | None], deadline: float
) -> list[TopicStep]:
    """Return the steps that lead to the declared state, in the order of `TopicAction`.

    Raises IllegalArgumentError for a change that is not possible for an existing topic.
    """
    present = await describe_all_topics(router, False, deadline)
    keys = {
        ConfigKey.topic(name): None
        for name, wanted in declared.items()
        if wanted is not None and wanted.configs is not None and name in present
    }
    settings = await describe_configs(router, keys, False, False, deadline)
    steps: list[TopicStep] = []
    for name, wanted in declared.items():
        topic = present.get(name)
        if wanted is None:
            steps += [TopicStep(name, TopicAction.DELETE)] if topic else []
        elif topic is None:
            configs = {key: text_of(key, value) for key, value in (wanted.configs or {}).items()}
            steps.append(
                TopicStep(
                    name, TopicAction.CREATE, wanted.partitions, wanted.replication_factor, configs
                )
            )
        else:
            steps += _changes(topic, wanted, settings.get(ConfigKey.topic(name), {}))
    return sorted(steps, key=lambda step: step.action)


def _changes(
    topic: TopicDescription, wanted: DeclaredTopic, settings: Mapping[str, ConfigSetting]
) -> list[TopicStep]:
    """Return the steps that change an existing topic to its declared state."""
    name, count = topic.name, len(topic.partitions)
    factor = max((len(each.replicas) for each in topic.partitions), default=0)
    if wanted.replication_factor not in (None, factor):
        raise IllegalArgumentError(
            f"{name}: it has {factor} replicas, not {wanted.replication_factor}: use reassign"
        )
    if wanted.partitions is not None and wanted.partitions < count:
        raise IllegalArgumentError(
            f"{name}: it has {count} partitions, and cannot have {wanted.partitions}"
        )
    steps = []
    if wanted.partitions is not None and wanted.partitions > count:
        steps.append(TopicStep(name, TopicAction.GROW, wanted.partitions))
    if wanted.configs is not None:
        changes: dict[str, str | None] = {}
        for key, value in wanted.configs.items():
            setting = settings.get(key)
            if setting is None or setting.value != text_of(key, value) or not _is_set(setting):
                changes[key] = text_of(key, value)
        for key, setting in settings.items():
            if _is_set(setting) and key not in wanted.configs:
                changes[key] = None
        if changes:
            steps.append(TopicStep(name, TopicAction.CONFIGURE, configs=changes))
    return steps


def _is_set(setting: ConfigSetting) -> bool:
    return setting.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


async def _carry_out(router: Router, steps: Sequence[TopicStep], deadline: float) -> None:
    """Do all steps: one request for each action, in the order of `TopicAction`."""
    by_action: dict[TopicAction, list[TopicStep]] = {action: [] for action in TopicAction}
    for step in steps:
        by_action[step.action].append(step)
    new = [
        NewTopic(step.topic, step.partitions, step.replication_factor, None, step.configs)
        for step in by_action[TopicAction.CREATE]
    ]
    await create_topics(router, new, False, deadline)
    counts = {step.topic: step.partitions or 0 for step in by_action[TopicAction.GROW]}
    await create_partitions(router, counts, False, deadline)
    changes = {
        ConfigKey.topic(step.topic): {
            key: ConfigChange.delete() if value is None else ConfigChange.set(value)
            for key, value in step.configs.items()
        }
        for step in by_action[TopicAction.CONFIGURE]
    }
    await alter_configs(router, changes, False, deadline)
    await delete_topics(router, [step.topic for step in by_action[TopicAction.DELETE]], deadline)
