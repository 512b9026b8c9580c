"""Fetch: what to ask which broker for, and the way from its responses to records."""
