"""Messages for producer ids, which idempotent and transactional producers need."""

from aiokafka.protocol.schema import I16, I32, I64, Bool, NStr, Request, Response, field


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
