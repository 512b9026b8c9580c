"""Find positions: committed offsets, the reset policy, and look-ups by time and by epoch."""
