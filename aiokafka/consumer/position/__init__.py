"""Positions: committed offsets, the reset policy, and look-ups by timestamp and leader epoch."""
