"""What the members of a consumer group tell each other, and how partitions are shared out."""
