"""Fetching: the broker for each partition, Fetch requests, and the buffer of fetched records."""
