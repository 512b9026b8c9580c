"""The methods of aiokafka 0.14 that programs call or replace, with their parameters."""

from __future__ import annotations

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.producer import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

# Of each method: "async" or "def", and the parameters in the notation of a signature. "=" stands
# for a default, "*" begins keyword-only parameters.
METHODS: dict[type[Any], dict[str, tuple[str, str]]] = {
    AIOKafkaProducer: {
        "start": ("async", ""),
        "stop": ("async", ""),
        "flush": ("async", ""),
        "send": ("async", "topic value= key= partition= timestamp_ms= headers="),
        "send_and_wait": ("async", "topic value= key= partition= timestamp_ms= headers="),
        "create_batch": ("def", ""),
        "send_batch": ("async", "batch topic * partition="),
        "partitions_for": ("async", "topic"),
        "begin_transaction": ("async", ""),
        "commit_transaction": ("async", ""),
        "abort_transaction": ("async", ""),
        "transaction": ("def", ""),
        "send_offsets_to_transaction": ("async", "offsets group_id"),
        "_partition": ("def", "topic partition key value serialized_key serialized_value"),
        "__aenter__": ("async", ""),
        "__aexit__": ("async", "a b c"),
    },
    AIOKafkaConsumer: {
        "start": ("async", ""),
        "stop": ("async", ""),
        "subscribe": ("def", "topics= pattern= listener="),
        "unsubscribe": ("def", ""),
        "subscription": ("def", ""),
        "assign": ("def", "partitions"),
        "assignment": ("def", ""),
        "getone": ("async", "*partitions"),
        "getmany": ("async", "*partitions timeout_ms= max_records="),
        "__aiter__": ("def", ""),
        "__anext__": ("async", ""),
        "__aenter__": ("async", ""),
        "__aexit__": ("async", "a b c"),
        "commit": ("async", "offsets="),
        "committed": ("async", "partition"),
        "position": ("async", "partition"),
        "seek": ("def", "partition offset"),
        "seek_to_beginning": ("async", "*partitions"),
        "seek_to_end": ("async", "*partitions"),
        "seek_to_committed": ("async", "*partitions"),
        "offsets_for_times": ("async", "timestamps"),
        "beginning_offsets": ("async", "partitions"),
        "end_offsets": ("async", "partitions"),
        "highwater": ("def", "partition"),
        "last_stable_offset": ("def", "partition"),
        "last_poll_timestamp": ("def", "partition"),
        "pause": ("def", "*partitions"),
        "resume": ("def", "*partitions"),
        "paused": ("def", ""),
        "partitions_for_topic": ("def", "topic"),
        "topics": ("async", ""),
    },
    AIOKafkaAdminClient: {
        "start": ("async", ""),
        "close": ("async", ""),
        "stop": ("async", ""),
        "create_topics": ("async", "new_topics timeout_ms= validate_only="),
        "delete_topics": ("async", "topics timeout_ms="),
        "create_partitions": ("async", "topic_partitions timeout_ms= validate_only="),
        "list_topics": ("async", ""),
        "describe_topics": ("async", "topics="),
        "describe_cluster": ("async", ""),
        "describe_configs": ("async", "config_resources include_synonyms="),
        "alter_configs": ("async", "config_resources"),
        "describe_consumer_groups": (
            "async",
            "group_ids group_coordinator_id= include_authorized_operations=",
        ),
        "list_consumer_groups": ("async", "broker_ids="),
        "find_coordinator": ("async", "group_id coordinator_type="),
        "list_consumer_group_offsets": ("async", "group_id group_coordinator_id= partitions="),
        "delete_records": ("async", "records_to_delete timeout_ms="),
    },
    AIOKafkaClient: {
        "bootstrap": ("async", ""),
        "close": ("async", ""),
        "ready": ("async", "node_id * group="),
        "send": ("async", "node_id request * group="),
        "fetch_all_metadata": ("async", ""),
        "coordinator_lookup": ("async", "coordinator_type coordinator_key"),
        "get_random_node": ("def", ""),
        "force_metadata_update": ("def", ""),
        "add_topic": ("def", "topic"),
        "set_topics": ("def", "topics"),
        "_wait_on_metadata": ("async", "topic"),
    },
    GroupCoordinator: {
        "commit_offsets": ("async", "assignment offsets"),
        "fetch_committed_offsets": ("async", "partitions"),
        "request_rejoin": ("def", ""),
    },
    ClusterMetadata: {
        "brokers": ("def", ""),
        "broker_metadata": ("def", "broker_id"),
        "partitions_for_topic": ("def", "topic"),
        "available_partitions_for_topic": ("def", "topic"),
        "leader_for_partition": ("def", "partition"),
        "partitions_for_broker": ("def", "broker_id"),
        "topics": ("def", "exclude_internal_topics="),
        "add_listener": ("def", "listener"),
        "remove_listener": ("def", "listener"),
        "update_metadata": ("def", "metadata"),
        "failed_update": ("def", "exception"),
        "request_update": ("def", ""),
        "with_partitions": ("def", "partitions_to_add"),
        "is_bootstrap": ("def", "node_id"),
    },
    BatchBuilder: {
        "append": ("def", "* timestamp key value headers="),
        "close": ("def", ""),
        "closed": ("def", ""),
        "size": ("def", ""),
        "record_count": ("def", ""),
    },
}
