"""What the oldest supported Python lacks."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout, timeout_at
else:
    from async_timeout import timeout, timeout_at

__all__ = ["timeout", "timeout_at"]
