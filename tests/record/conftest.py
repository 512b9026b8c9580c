"""How much the property tests of this folder try."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "records",
    settings.get_profile("untimed"),
    max_examples=1000 if os.environ.get("AIOKAFKA_LONG") else 40,
)
settings.load_profile("records")
