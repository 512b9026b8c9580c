"""What a member of a chain is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

Mode = Literal["loop", "plain", "session"]
"""How a member works.

"loop": reads, sends, commits when all is acknowledged: at least once.
"plain": the same in transactions, with the group's name as it is in aiokafka's manual.
"session": with a `TransactionalSession`.
"""


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """Given to `tests.chain.worker` as JSON. `slot` is a place in the group that one process after
    the other takes. With the place goes a transactional id, so that the newer fences the older; or
    the process has one of its own, and only the group can tell who is late."""

    servers: str
    source: str
    target: str
    group: str
    slot: str
    transactional_id: str
    mode: Mode
    partitions: tuple[int, ...] = ()
    """What to read; if empty, the group shares them out."""
    protocol: str = "classic"
    assignor: str = "range"
    session_timeout_ms: int = 6000
    max_records: int = 500
    seed: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MemberOptions:
        return cls(**{**json.loads(text), "partitions": tuple(json.loads(text)["partitions"])})
