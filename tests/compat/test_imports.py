"""Every import that published programs make of aiokafka, inner modules included."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys

import pytest

import aiokafka

IMPORTS = [
    # FastStream
    "aiokafka.admin.client AIOKafkaAdminClient",
    "aiokafka.structs RecordMetadata TopicPartition",
    "aiokafka.partitioner DefaultPartitioner murmur2",
    "aiokafka.producer.producer _missing AIOKafkaProducer",
    "aiokafka.coordinator.assignors.roundrobin RoundRobinPartitionAssignor",
    "aiokafka.coordinator.assignors.abstract AbstractPartitionAssignor",
    "aiokafka.errors ConsumerStoppedError KafkaError UnsupportedCodecError TopicAlreadyExistsError"
    " for_code",
    # ddtrace
    "aiokafka.protocol.metadata MetadataRequest",
    "aiokafka.consumer.group_coordinator GroupCoordinator",
    # Faust
    "aiokafka.abc ConsumerRebalanceListener AbstractTokenProvider",
    "aiokafka.conn AbstractTokenProvider",
    "aiokafka.cluster ClusterMetadata BrokerMetadata",
    "aiokafka.coordinator.protocol ConsumerProtocolMemberAssignment ConsumerProtocolMemberMetadata",
    "aiokafka.consumer.group_coordinator OffsetCommitRequest CoordinationType",
    "aiokafka.protocol.admin CreateTopicsRequest",
    "aiokafka.util parse_kafka_version",
    "aiokafka.errors ProducerFenced",
    # Karapace
    "aiokafka.client AIOKafkaClient ConnectionGroup CoordinationType",
    "aiokafka.protocol.api Request Response",
    "aiokafka.protocol.group HeartbeatRequest JoinGroupRequest LeaveGroupRequest SyncGroupRequest"
    " JoinGroupResponse_v0 JoinGroupResponse_v1 JoinGroupResponse_v2 JoinGroupResponse_v5"
    " SyncGroupRequest_v0 SyncGroupRequest_v1 SyncGroupRequest_v3",
    "aiokafka.protocol.commit OffsetCommitRequest_v2",
    "aiokafka.util create_future create_task",
    # seen in several repositories
    "aiokafka.consumer.consumer AIOKafkaConsumer",
    "aiokafka.producer.message_accumulator BatchBuilder RecordMetadata",
    "aiokafka.consumer.subscription_state SubscriptionState ConsumerRebalanceListener",
    "aiokafka.consumer.fetcher Fetcher",
    "aiokafka.admin.client AIOKafkaAdminClient NewTopic",
    "aiokafka.admin.new_topic NewTopic",
    "aiokafka.admin.new_partitions NewPartitions",
    "aiokafka.admin.records_to_delete RecordsToDelete",
    "aiokafka.admin.config_resource ConfigResource ConfigResourceType",
    "aiokafka.codec has_gzip has_snappy has_lz4 has_zstd",
    "aiokafka.helpers create_ssl_context",
    "aiokafka.protocol.produce ProduceRequest",
    "aiokafka.protocol.fetch FetchRequest",
    "aiokafka.protocol.commit OffsetCommitRequest OffsetFetchRequest",
    "aiokafka.protocol.offset OffsetRequest",
    "aiokafka.protocol.transaction InitProducerIdRequest",
    "aiokafka.protocol.coordination FindCoordinatorRequest",
    "aiokafka.protocol.metadata MetadataRequest_v1 MetadataRequest_v4 MetadataRequest_v5",
    "aiokafka.client asyncio",
    "aiokafka.conn asyncio functools",
    "aiokafka.client log",
    "aiokafka.cluster TopicPartition",
    "aiokafka.consumer.consumer RoundRobinPartitionAssignor",
    "aiokafka.consumer.fetcher asyncio",
    "aiokafka.producer.message_accumulator MessageBatch",
    "aiokafka.producer.sender Sender",
    "aiokafka.consumer.fetcher ConsumerRecord ConsumerStoppedError TopicPartition",
    "aiokafka.consumer.group_coordinator ConnectionGroup OffsetAndMetadata TopicPartition",
    # aiokafka 0.15.0rc1
    "aiokafka ProducerMetricsCollector",
    "aiokafka.errors FencedInstanceIdError",
    # the tests of aiokafka, and programs that were copied from it
    "aiokafka.conn AIOKafkaConnection CloseReason",
    "aiokafka.consumer.fetcher Fetcher FetchRequest RecordTooLargeError",
    "aiokafka.producer.transaction_manager TransactionManager TransactionState",
    "aiokafka.coordinator.assignors.sticky.partition_movements PartitionMovements",
    "aiokafka.record MemoryRecords",
    "aiokafka.record.memory_records MemoryRecords",
    "aiokafka.record.default_records DefaultRecordBatch DefaultRecordBatchBuilder"
    " _DefaultRecordBatchBuilderPy",
    "aiokafka.record.legacy_records LegacyRecordBatch LegacyRecordBatchBuilder",
    "aiokafka.record.util calc_crc32c decode_varint encode_varint size_of_varint",
    "aiokafka.record.control_record ABORT_MARKER COMMIT_MARKER ControlRecord",
    "aiokafka.util NO_EXTENSIONS",
]


@pytest.mark.parametrize("line", IMPORTS)
def test_import(line: str) -> None:
    module, *names = line.split()
    found = importlib.import_module(module)
    missing = [name for name in names if not hasattr(found, name)]
    assert not missing


# All that the import of aiokafka loads there.
INNER = [
    "consumer.consumer",
    "consumer.fetcher",
    "consumer.group_coordinator",
    "consumer.subscription_state",
    "coordinator.assignors.abstract",
    "coordinator.assignors.roundrobin",
    "coordinator.protocol",
    "producer.message_accumulator",
    "producer.producer",
    "producer.sender",
    "producer.transaction_manager",
    "protocol.admin",
    "protocol.api",
    "protocol.commit",
    "protocol.coordination",
    "protocol.fetch",
    "protocol.group",
    "protocol.metadata",
    "protocol.offset",
    "protocol.produce",
    "protocol.transaction",
    "record.control_record",
    "record.default_records",
    "record.legacy_records",
    "record.memory_records",
    "record.util",
]
WALK = """
import functools, sys
import aiokafka
functools.reduce(getattr, sys.argv[1].split("."), aiokafka)
"""


@pytest.mark.parametrize("path", INNER)
def test_inner_module_after_the_import_of_the_package_alone(path: str) -> None:
    """As in `import aiokafka; aiokafka.coordinator.assignors.roundrobin`, whatever was loaded."""
    found = functools.reduce(getattr, path.split("."), aiokafka)
    assert found is importlib.import_module(f"aiokafka.{path}")
    subprocess.run([sys.executable, "-c", WALK, path], check=True)


def test_no_other_name_is_found_there() -> None:
    for package in (aiokafka.consumer, aiokafka.coordinator, aiokafka.protocol, aiokafka.record):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018
