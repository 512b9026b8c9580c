"""Messages for producing records, and for the producer ids of idempotent producers."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    ZERO_UUID,
    Bool,
    NStr,
    Records,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class InitProducerIdResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    producer_id: I64 = -1
    producer_epoch: I16
    ongoing_txn_producer_id: I64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: I16 = field("6+", default=-1)


class InitProducerIdRequest(
    Request[InitProducerIdResponse], api_key=22, versions="0-6", flexible="2+"
):
    """Get a producer id and epoch; with a transactional id, fence the previous producer of that
    id."""

    transactional_id: NStr
    transaction_timeout_ms: I32
    producer_id: I64 = field("3+", default=-1)  # KIP-360
    producer_epoch: I16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)  # KIP-939
    keep_prepared_txn: Bool = field("6+", default=False)


class BatchIndexAndErrorMessage(Struct):
    batch_index: I32
    batch_index_error_message: NStr = None


class LeaderIdAndEpoch(Struct):
    leader_id: I32 = -1
    leader_epoch: I32 = -1


class PartitionProduceResponse(Struct):
    index: I32
    error_code: I16 = 0
    base_offset: I64
    log_append_time_ms: I64 = field("2+", default=-1, ignorable=True)
    log_start_offset: I64 = field("5+", default=-1, ignorable=True)
    # KIP-467
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default=[], ignorable=True)
    error_message: NStr = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", default=LeaderIdAndEpoch(), tag=0)  # KIP-951


class TopicProduceResponse(Struct):
    name: Str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: I32
    host: Str
    port: I32
    rack: NStr = None


class ProduceResponse(Response):
    responses: list[TopicProduceResponse]
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default=[], tag=0)


class PartitionProduceData(Struct):
    index: I32
    records: Records = None


class TopicProduceData(Struct):
    name: Str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)  # KIP-516
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request[ProduceResponse], api_key=0, versions="0-13", flexible="9+"):
    """Append record batches to partitions; with acks=0 there is no response.

    From version 12 on a transactional request also adds the partitions to the transaction, which
    replaces AddPartitionsToTxn. A transactional producer must use these versions only if
    transaction.version is at least 2 (KIP-890).
    """

    transactional_id: NStr = field("3+", default=None)  # KIP-98
    acks: I16
    timeout_ms: I32
    topic_data: list[TopicProduceData]

    @property
    def expects_response(self) -> bool:  # type: ignore[override]
        return self.acks != 0
