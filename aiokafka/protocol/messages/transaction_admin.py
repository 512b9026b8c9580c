"""Messages for listing, describing and aborting transactions (KIP-664)."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: I32
    error_code: I16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: Str
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: I64
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult]


class WritableTxnMarkerTopic(Struct):
    name: Str
    partition_indexes: list[I32]


class WritableTxnMarker(Struct):
    producer_id: I64
    producer_epoch: I16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: I32
    transaction_version: I8 = field("2+", default=0, ignorable=True)  # KIP-1228


class WriteTxnMarkersRequest(
    Request[WriteTxnMarkersResponse], api_key=27, versions="0-2", flexible="1+"
):
    """Write transaction markers. Brokers send this request; an admin client sends it to abort a
    hanging transaction."""

    markers: list[WritableTxnMarker]


class ProducerState(Struct):
    producer_id: I64
    producer_epoch: I32
    last_sequence: I32 = -1
    last_timestamp: I64 = -1
    coordinator_epoch: I32
    current_txn_start_offset: I64 = -1


class PartitionResponse(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = None
    active_producers: list[ProducerState]


class TopicResponse(Struct):
    name: Str
    partitions: list[PartitionResponse]


class DescribeProducersResponse(Response):
    throttle_time_ms: I32 = 0
    topics: list[TopicResponse]


class TopicRequest(Struct):
    name: Str
    partition_indexes: list[I32]


class DescribeProducersRequest(
    Request[DescribeProducersResponse], api_key=61, versions="0", flexible="0+"
):
    """Describe the active producers of partitions."""

    topics: list[TopicRequest]


class TopicData(Struct):
    topic: Str
    partitions: list[I32]


class TransactionState(Struct):
    error_code: I16 = 0
    transactional_id: Str
    transaction_state: Str
    transaction_timeout_ms: I32
    transaction_start_time_ms: I64
    producer_id: I64
    producer_epoch: I16
    topics: list[TopicData]


class DescribeTransactionsResponse(Response):
    throttle_time_ms: I32 = 0
    transaction_states: list[TransactionState]


class DescribeTransactionsRequest(
    Request[DescribeTransactionsResponse], api_key=65, versions="0", flexible="0+"
):
    """Describe the transaction of each transactional id."""

    transactional_ids: list[Str]


class ListedTransaction(Struct):
    transactional_id: Str
    producer_id: I64
    transaction_state: Str


class ListTransactionsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    unknown_state_filters: list[Str]
    transaction_states: list[ListedTransaction]


class ListTransactionsRequest(
    Request[ListTransactionsResponse], api_key=66, versions="0-2", flexible="0+"
):
    """List the transactions of a transaction coordinator."""

    state_filters: list[Str]
    producer_id_filters: list[I64]
    duration_filter: I64 = field("1+", default=-1)  # KIP-994
    transactional_id_pattern: NStr = field("2+", default=None)  # KIP-1152
