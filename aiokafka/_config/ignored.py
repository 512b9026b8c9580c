"""Keywords of older versions that are accepted and have no effect."""

from __future__ import annotations

import warnings

_IGNORED = {
    "loop": "the running event loop is used",
    "api_version": "versions are negotiated with every broker",
    "send_backoff_ms": "see linger_ms and retry_backoff_ms",
}

# So begins what programs have filters of warnings for.
_OPENINGS = {
    "api_version": "The `api_version` parameter has been deprecated since 0.13.0. "
    "It is now a no-op and will be removed in a future release. Here "
}


def warn_ignored(stacklevel: int = 3, **given: object) -> None:
    """Warn about keywords of older versions that are accepted and have no effect.

    None is never worth a warning, and neither is `api_version="auto"`.
    """
    for keyword, value in given.items():
        if value is None or (keyword == "api_version" and value == "auto"):
            continue
        opening = _OPENINGS.get(keyword, "")
        warnings.warn(
            f"{opening}the argument {keyword} has no effect: {_IGNORED[keyword]}",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
