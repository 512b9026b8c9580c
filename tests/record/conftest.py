"""How much the property tests of this folder try, and that none of them is timed."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "records",
    deadline=None,
    max_examples=1000 if os.environ.get("AIOKAFKA_LONG") else 40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("records")
