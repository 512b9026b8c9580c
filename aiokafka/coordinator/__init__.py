"""What the members of a consumer group exchange, and how partitions are assigned."""
