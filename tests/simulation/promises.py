"""What clients keep in a scenario in which little happens, and need not in any other."""

from __future__ import annotations

NO_ERRORS = "no errors"
"""No call raises an error of Kafka's, and no delivery fails."""

DELIVERED = "delivered"
"""No delivery fails: no outage is as long as records may wait."""

PROMPT = "prompt"
"""Every call ends within some seconds, whatever it may take by its options."""

ONCE = "once"
"""No group gets a record twice: its members commit what is finished before they go."""

FRESH = "fresh"
"""Readers have everything some seconds after the last record was written."""

EVERY = "every record"
"""Readers get every record that is there at the end, also of logs that were cut or made again."""

STEADY = "steady"
"""Static members keep their partitions, and never leave."""

MEMBERS = "members"
"""Consumers return nothing once they know that their group has removed them."""

USABLE = "usable"
"""No error ends a transactional producer for good."""

PATIENT = "patient"
"""Brokers that cannot be reached are called with pauses that grow to a second."""

LATE_ONLY = "late only"
"""Transactions fail only if the time of a record of theirs is over."""

ROOM = "room"
"""Readers have everything a minute after the faults, and before that minute of all that they do not
keep paused: no memory is kept from partitions by others."""

SILENT = "silent"
"""No call returns records while a listener is at work, nor those of partitions for which it has
returned, however long interceptors look."""

PROMPT_S = 8.0
FRESH_S = 15.0
ROOM_S = 60.0
