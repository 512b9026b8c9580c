"""Waits that last: what the log, `health()` and callers see of them."""
