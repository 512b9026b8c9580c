"""Group membership: joining by either group protocol, rebalances, and commits of offsets."""
