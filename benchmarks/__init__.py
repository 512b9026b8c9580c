"""Compares this client with others on one real broker: ``make bench`` or ``python -m benchmarks``."""
