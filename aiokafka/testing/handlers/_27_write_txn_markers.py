"""WriteTxnMarkers: end transactions in partitions, as coordinators do (KIP-98, 664)."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.protocol.messages.transaction_admin import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import check_leader
from aiokafka.testing.script import RequestContext

REQUEST = WriteTxnMarkersRequest

Judge = Callable[[WritableTxnMarker, str, int], int]
"""Return the error code for a marker in one partition."""


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write each marker where this broker leads."""
    return _respond(request, lambda marker, topic, index: _write(context, marker, topic, index))


def refuse(
    context: RequestContext, request: WriteTxnMarkersRequest, errno: int
) -> WriteTxnMarkersResponse:
    """Refuse every marker."""
    return _respond(request, lambda marker, topic, index: errno)


def _respond(request: WriteTxnMarkersRequest, judge: Judge) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=judge(marker, topic.name, index)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _write(context: RequestContext, marker: WritableTxnMarker, topic: str, index: int) -> int:
    partition = context.state.partition(topic, index)
    errno = check_leader(context, partition)
    if errno or partition is None:
        return errno
    known = partition.log.producers.entries.get(marker.producer_id)
    if known is not None and marker.producer_epoch < known.epoch:
        return codes.INVALID_PRODUCER_EPOCH
    partition.log.add_marker(
        marker.producer_id, marker.producer_epoch, commit=marker.transaction_result
    )
    return codes.NONE
