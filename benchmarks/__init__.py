"""Compares this client with others on one real broker: ``make bench``."""
