"""What the handlers of transactions have in common."""

from __future__ import annotations

from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext


def in_version(context: RequestContext, errno: int, first_fenced: int) -> int:
    """Return the error code as a version has it: PRODUCER_FENCED was INVALID_PRODUCER_EPOCH before
    the version `first_fenced` (KIP-588).
    """
    if errno == codes.PRODUCER_FENCED and context.api_version < first_fenced:
        return codes.INVALID_PRODUCER_EPOCH
    return errno
