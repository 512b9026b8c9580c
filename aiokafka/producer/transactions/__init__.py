"""Transactions: their state, their requests, and what belongs to them."""
