"""Listing transactions (KIP-664)."""

from aiokafka.protocol.schema import I16, I32, I64, NStr, Request, Response, Str, Struct, field


class TransactionState(Struct):
    transactional_id: Str
    producer_id: I64
    transaction_state: Str


class ListTransactionsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    unknown_state_filters: list[Str]
    transaction_states: list[TransactionState]


class ListTransactionsRequest(
    Request[ListTransactionsResponse], api_key=66, versions="0-2", flexible="0+"
):
    """List the transactions of a transaction coordinator."""

    state_filters: list[Str]
    producer_id_filters: list[I64]
    duration_filter: I64 = field("1+", default=-1)  # KIP-994
    transactional_id_pattern: NStr = field("2+", default=None)  # KIP-1152
