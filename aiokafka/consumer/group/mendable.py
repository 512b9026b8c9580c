"""Decide which errors of a group the application is told, and whether to try again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownError,
    renewed,
)
from aiokafka.net.failures import REFUSALS

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.group.state import Standing

__all__ = ["MendableErrors"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

# What an administrator may mend while the consumer waits, and what the broker cannot explain: the
# application is told, and the group asked again.
_MENDABLE = (
    *REFUSALS,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownError,
)


class MendableErrors:
    """Reports errors that a later attempt may not get.

    Owns: the errors that it reported last, by their kinds. A listener may have raised others of the
    same kinds, which are none of its business.
    """

    def __init__(self, shared: Shared, standing: Standing) -> None:
        self._desk = shared.desk
        self._standing = standing
        self._log = SubjectLog(log, shared.config.subject)
        self._reported: dict[type[KafkaError], BaseException] = {}

    def clear(self) -> None:
        """Withdraw the errors that were reported: the coordinator counts us as a member."""
        self._desk.withdraw_errors(self._reported.values())
        self._reported.clear()

    def may_pass(self, error: KafkaError) -> bool:
        """Report an error that a retry may clear; return False for any other, and for those that
        `start()` raises."""
        self._standing.note_trouble(error)
        if self._standing.is_starting and isinstance(error, (*_MENDABLE, KafkaTimeoutError)):
            return False
        if isinstance(error, _MENDABLE):
            # Once for each call of an application, however often it was tried meanwhile.
            if (former := self._reported.get(type(error))) is not None:
                self._desk.withdraw_errors((former,))
            self._reported[type(error)] = reported = renewed(error)
            self._desk.fail_next_call(reported)
        elif error.retriable or isinstance(error, KafkaTimeoutError):
            self._log.debug("%s", error)
        else:
            return False
        return True
