"""Sending batches: whose turn it is, with which numbers, and what the response means."""
