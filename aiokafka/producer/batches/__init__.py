"""Batches: what is in them, where they wait, and how records get in."""
