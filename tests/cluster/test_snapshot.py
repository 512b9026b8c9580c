"""ClusterMetadata: what it answers, and what it believes of a new answer."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.cluster import AllTopics, ClusterMetadata
from aiokafka.errors import MetadataEmptyBrokerList
from aiokafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.structs import BrokerMetadata, PartitionMetadata, TopicPartition

ID_A, ID_B = b"a" * 16, b"b" * 16


def partition(index: int, leader: int = 1, epoch: int = 0, error: int = 0) -> Any:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[],
    )


def topic(name: str, *partitions: Any, error: int = 0, topic_id: bytes = ID_A) -> Any:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, partitions=list(partitions)
    )


def response(*topics: Any, brokers: tuple[int, ...] = (1, 2), controller: int = 2) -> Any:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=i, host=f"host{i}", port=9092, rack=f"rack{i}")
            for i in brokers
        ],
        cluster_id="cluster",
        controller_id=controller,
        topics=list(topics),
    )


@pytest.fixture
def cluster() -> ClusterMetadata:
    return ClusterMetadata().updated(
        response(topic("t", partition(1, 2, 5), partition(0, 1, 5), partition(2, -1, 5)))
    )


def test_brokers_and_controller(cluster: ClusterMetadata) -> None:
    assert cluster.brokers() == {
        BrokerMetadata(1, "host1", 9092, "rack1"),
        BrokerMetadata(2, "host2", 9092, "rack2"),
    }
    assert cluster.broker_metadata(1) == BrokerMetadata(1, "host1", 9092, "rack1")
    assert cluster.broker_metadata(9) is None
    assert cluster.controller == BrokerMetadata(2, "host2", 9092, "rack2")
    assert cluster.cluster_id == "cluster"
    assert not cluster.is_bootstrap(1)
    assert cluster.is_bootstrap(-1)


def test_partitions_and_leaders(cluster: ClusterMetadata) -> None:
    assert cluster.partitions_for_topic("t") == {0, 1, 2}
    assert cluster.partition_ids("t") == (0, 1, 2)
    assert cluster.available_partitions_for_topic("t") == {0, 1}
    assert cluster.available_partition_ids("t") == (0, 1)
    assert cluster.leader_for_partition(TopicPartition("t", 1)) == 2
    assert cluster.leader_for_partition(TopicPartition("t", 2)) == -1
    assert cluster.leader_for_partition(TopicPartition("t", 3)) is None
    assert cluster.leader_epoch(TopicPartition("t", 1)) == 5
    assert cluster.leader_epoch(TopicPartition("u", 1)) == -1
    assert cluster.partitions_for_broker(1) == {TopicPartition("t", 0)}
    assert cluster.partitions_for_broker(7) is None


def test_unknown_topics_are_none(cluster: ClusterMetadata) -> None:
    assert cluster.partitions_for_topic("u") is None
    assert cluster.available_partitions_for_topic("u") is None
    assert cluster.partition_ids("u") == ()
    assert cluster.topic_id("u") is None


def test_topic_ids_go_both_ways(cluster: ClusterMetadata) -> None:
    assert cluster.topic_id("t") == ID_A
    assert cluster.topic_name(ID_A) == "t"
    assert cluster.topic_name(ID_B) is None


def test_brokers_without_topic_ids_share_no_zero_id() -> None:
    cluster = ClusterMetadata().updated(response(topic("t", partition(0), topic_id=bytes(16))))
    assert cluster.topic_id("t") is None
    assert cluster.topic_name(bytes(16)) is None


def test_internal_topics_are_left_out_on_request() -> None:
    internal = topic("__consumer_offsets", partition(0))
    internal.is_internal = True
    cluster = ClusterMetadata().updated(response(internal, topic("t", partition(0))))
    assert cluster.topics() == {"t"}
    assert cluster.topics(exclude_internal_topics=False) == {"t", "__consumer_offsets"}
    assert cluster.internal_topics == {"__consumer_offsets"}


def test_a_new_snapshot_leaves_the_old_one_alone(cluster: ClusterMetadata) -> None:
    newer = cluster.updated(response(topic("u", partition(0))))
    assert cluster.topics() == {"t"}
    assert newer.topics() == {"u"}
    assert newer.epoch == cluster.epoch + 1


def test_a_partial_answer_keeps_the_other_topics(cluster: ClusterMetadata) -> None:
    newer = cluster.updated(response(topic("u", partition(0))), is_full=False)
    assert newer.topics() == {"t", "u"}


def test_a_full_answer_keeps_what_is_asked_to_be_kept(cluster: ClusterMetadata) -> None:
    newer = cluster.updated(response(topic("u", partition(0))), keep={"t"})
    assert newer.topics() == {"t", "u"}


@pytest.mark.parametrize("error", [5, 7, 3, -1, 9999])
def test_a_passing_error_keeps_the_old_partitions(cluster: ClusterMetadata, error: int) -> None:
    newer = cluster.updated(response(topic("t", error=error)))
    assert newer.partitions_for_topic("t") == {0, 1, 2}
    assert newer.topic_error("t") == error
    assert newer.topics_without_leaders(["t", "u"]) == {"t"}


@pytest.mark.parametrize("error", [3, -1])
def test_a_topic_that_stays_unknown_is_dropped(cluster: ClusterMetadata, error: int) -> None:
    for _ in range(3):
        cluster = cluster.updated(response(topic("t", error=error)))
    assert cluster.partitions_for_topic("t") is None
    assert cluster.topic_error("t") == error


def test_a_good_answer_makes_up_for_earlier_errors(cluster: ClusterMetadata) -> None:
    for _ in range(5):
        cluster = cluster.updated(response(topic("t", error=3)))
        cluster = cluster.updated(response(topic("t", partition(0, epoch=9))))
    assert cluster.partitions_for_topic("t") == {0, 1, 2}
    assert cluster.topic_error("t") == 0


def test_a_topic_never_has_fewer_partitions_than_before(cluster: ClusterMetadata) -> None:
    """A group gave those up, and a consumer did not read them, for up to five minutes."""
    lagging = response(topic("t", partition(0, leader=2, epoch=9)))
    newer = cluster.updated(lagging)
    assert newer.partitions_for_topic("t") == {0, 1, 2}
    assert newer.partition(TopicPartition("t", 2)) is cluster.partition(TopicPartition("t", 2))
    assert newer.leader_for_partition(TopicPartition("t", 0)) == 2
    another = response(topic("t", partition(0), topic_id=ID_B))
    assert newer.updated(another).partitions_for_topic("t") == {0}


def test_a_refused_topic_is_dropped_at_once(cluster: ClusterMetadata) -> None:
    newer = cluster.updated(response(topic("t", error=29)))
    assert newer.partitions_for_topic("t") is None
    assert newer.unauthorized_topics == {"t"}
    assert newer.topic_errors() == {"t": 29}


def test_leader_epochs_never_go_back(cluster: ClusterMetadata) -> None:
    stale = cluster.updated(response(topic("t", partition(1, leader=1, epoch=4))))
    assert stale.leader_for_partition(TopicPartition("t", 1)) == 2
    assert stale.leader_epoch(TopicPartition("t", 1)) == 5
    newer = stale.updated(response(topic("t", partition(1, leader=1, epoch=6))))
    assert newer.leader_for_partition(TopicPartition("t", 1)) == 1


def test_an_older_epoch_is_never_believed_of_a_topic_with_an_id(cluster: ClusterMetadata) -> None:
    for _ in range(20):
        cluster = cluster.updated(response(topic("t", partition(1, leader=1, epoch=4))))
    assert cluster.leader_for_partition(TopicPartition("t", 1)) == 2


def test_without_topic_ids_an_older_epoch_is_believed_when_it_is_repeated() -> None:
    tp = TopicPartition("t", 0)

    def told(epoch: int) -> Any:
        return response(topic("t", partition(0, epoch, epoch), topic_id=bytes(16)))

    cluster = ClusterMetadata().updated(told(5))
    for _ in range(2):
        cluster = cluster.updated(told(4))
        assert cluster.leader_epoch(tp) == 5
    cluster = cluster.updated(told(5)).updated(told(4)).updated(told(4))
    assert cluster.leader_epoch(tp) == 5, "not in a row"
    cluster = cluster.updated(told(4))
    assert (cluster.leader_epoch(tp), cluster.leader_for_partition(tp)) == (4, 4)


def test_a_topic_made_anew_starts_its_epochs_anew(cluster: ClusterMetadata) -> None:
    newer = cluster.updated(response(topic("t", partition(1, leader=1, epoch=0), topic_id=ID_B)))
    assert newer.leader_for_partition(TopicPartition("t", 1)) == 1
    assert newer.leader_epoch(TopicPartition("t", 1)) == 0
    assert newer.topic_name(ID_A) is None
    assert newer.topic_name(ID_B) == "t"


def test_brokers_that_tell_no_epochs_are_believed() -> None:
    cluster = ClusterMetadata().updated(response(topic("t", partition(0, 1, -1))))
    cluster = cluster.updated(response(topic("t", partition(0, 2, -1))))
    assert cluster.leader_for_partition(TopicPartition("t", 0)) == 2


def test_an_epoch_is_forgotten_when_responses_go_on_without_one() -> None:
    tp = TopicPartition("t", 0)

    def told(epoch: int, *isr: int) -> Any:
        described = partition(0, 1, epoch)
        described.isr_nodes = list(isr)
        return response(topic("t", described))

    cluster = ClusterMetadata().updated(told(5, 1)).updated(told(-1, 1)).updated(told(-1, 1, 2))
    assert cluster.leader_epoch(tp) == 5
    cluster = cluster.updated(told(5, 1)).updated(told(-1, 1)).updated(told(-1, 1))
    assert cluster.leader_epoch(tp) == 5, "not in a row"
    cluster = cluster.updated(told(-1, 1))
    assert cluster.leader_epoch(tp) == -1


def test_newer_leaders_from_error_answers(cluster: ClusterMetadata) -> None:
    tp = TopicPartition("t", 0)
    endpoint = BrokerMetadata(7, "host7", 9092, None)
    newer = cluster.with_leaders({tp: (7, 6)}, [endpoint])
    assert newer.leader_for_partition(tp) == 7
    assert newer.leader_epoch(tp) == 6
    assert newer.broker_metadata(7) == endpoint
    assert newer.controller == cluster.controller
    assert newer.topic_id("t") == ID_A
    assert cluster.leader_for_partition(tp) == 1


def test_older_leaders_from_error_answers_are_ignored(cluster: ClusterMetadata) -> None:
    assert cluster.with_leaders({TopicPartition("t", 0): (2, 5)}) is cluster
    assert cluster.with_leaders({TopicPartition("t", 9): (2, 9)}) is cluster
    assert cluster.with_leaders({TopicPartition("u", 0): (2, 9)}) is cluster
    assert cluster.with_leaders({TopicPartition("t", 0): (-1, 9)}) is cluster


def test_an_answer_without_brokers_keeps_the_old_ones(cluster: ClusterMetadata) -> None:
    assert cluster.updated(response(brokers=())).brokers() == cluster.brokers()


def test_listeners_hear_of_every_snapshot() -> None:
    heard: list[ClusterMetadata] = []
    cluster = ClusterMetadata()
    cluster.add_listener(heard.append)
    cluster.add_listener(lambda _: 1 / 0)
    cluster.update_metadata(response(topic("t", partition(0))))
    assert heard == [cluster]
    cluster.remove_listener(heard.append)
    cluster.remove_listener(print)
    cluster.update_metadata(response())
    assert len(heard) == 1


def test_a_cluster_made_by_hand_takes_updates_in_place() -> None:
    cluster = ClusterMetadata(bootstrap_servers="localhost")
    cluster.update_metadata(response(topic("t", partition(0))))
    assert cluster.partitions_for_topic("t") == {0}


def test_an_update_of_a_cluster_made_by_hand_is_awaited() -> None:
    cluster = ClusterMetadata()
    update = cluster.request_update()
    assert cluster.request_update() is update
    assert not update.done()
    cluster.update_metadata(response(topic("t", partition(0))))
    assert update.result() is cluster

    failed = cluster.request_update()
    assert failed is not update
    cluster.failed_update(OSError("no way"))
    assert isinstance(failed.exception(), OSError)

    failed = cluster.request_update()
    cluster.update_metadata(MetadataResponse(brokers=[], topics=[]))
    assert isinstance(failed.exception(), MetadataEmptyBrokerList)
    assert cluster.partitions_for_topic("t") == {0}
    assert cluster.brokers()


def test_partitions_can_be_added_to_a_copy(cluster: ClusterMetadata) -> None:
    added = PartitionMetadata("u", 3, 1, [1, 2], [1], None)
    assert cluster.with_partitions([added]).partitions_for_topic("u") == {3}
    assert cluster.partitions_for_topic("u") is None


def test_an_address_told_without_a_rack_keeps_the_rack(cluster: ClusterMetadata) -> None:
    assert cluster.with_leaders({}, [BrokerMetadata(1, "host1", 9092, None)]) is cluster
    moved = cluster.with_leaders({}, [BrokerMetadata(1, "host9", 9092, None)])
    assert moved.broker_metadata(1) == BrokerMetadata(1, "host9", 9092, None)


def test_what_has_not_changed_is_shared(cluster: ClusterMetadata) -> None:
    told = topic("t", partition(1, 2, 5), partition(0, 2, 6), partition(2, -1, 5))
    after = cluster.updated(response(told))

    for number in (1, 2):
        tp = TopicPartition("t", number)
        assert after.partition(tp) is cluster.partition(tp)
    moved = TopicPartition("t", 0)
    assert (cluster.leader_for_partition(moved), after.leader_for_partition(moved)) == (1, 2)
    # Who waits for a newer response knows it by this.
    assert after.topic_info("t") is not cluster.topic_info("t")


@pytest.mark.parametrize("changed", ["replica_nodes", "isr_nodes", "offline_replicas"])
def test_a_partition_with_other_replicas_is_not_shared(
    cluster: ClusterMetadata, changed: str
) -> None:
    told = partition(1, 2, 5)
    setattr(told, changed, [2, 1])
    after = cluster.updated(response(topic("t", told)))

    known = after.partition(TopicPartition("t", 1))
    assert known is not None
    assert (2, 1) in (known.replicas, known.isr, known.offline)


def test_look_ups_of_one_snapshot_are_not_those_of_the_next(cluster: ClusterMetadata) -> None:
    """They are made when they are asked for, whichever snapshot is asked first."""
    after = cluster.with_leaders({TopicPartition("t", 2): (1, 6)})

    assert after.available_partition_ids("t") == (0, 1, 2)
    assert cluster.available_partition_ids("t") == (0, 1)
    assert cluster.available_partitions_for_topic("t") == {0, 1}
    assert after.available_partitions_for_topic("t") == {0, 1, 2}
    again = after.with_leaders({TopicPartition("t", 0): (-1, 7), TopicPartition("t", 1): (2, 7)})
    assert again.leader_for_partition(TopicPartition("t", 1)) == 2
    grown = again.updated(response(topic("t", *(partition(i, 1, 9) for i in range(5)))))
    assert grown.partition_ids("t") == (0, 1, 2, 3, 4)
    assert again.partition_ids("t") == (0, 1, 2)


def test_a_topic_without_a_leader_has_no_available_partitions() -> None:
    cluster = ClusterMetadata().updated(response(topic("t", partition(0, -1))))

    assert cluster.available_partition_ids("t") == ()
    assert cluster.available_partitions_for_topic("t") == frozenset()
    assert cluster.partitions_for_topic("t") == {0}
    assert cluster.topics_without_leaders(["t", "nowhere"]) == {"t"}
    assert cluster.available_partitions_for_topic("nowhere") is None


def test_all_topics_of_a_cluster_by_their_partitions() -> None:
    hidden = topic("__offsets", partition(0))
    hidden.is_internal = True
    everything = AllTopics(
        response(
            topic("t", partition(1), partition(0)),
            topic("gap", partition(5), partition(7)),
            topic("denied", partition(0), error=29),
            topic("empty"),
            topic("strange", partition(-1)),
            hidden,
        )
    )

    assert everything.names(exclude_internal=True) == {"t", "gap"}
    assert everything.names(exclude_internal=False) == {"t", "gap", "__offsets"}
    assert everything.partitions("t") == {0, 1}
    assert everything.partitions("gap") == {5, 7}
    for name in ("denied", "empty", "strange", "nowhere"):
        assert everything.partitions(name) is None
