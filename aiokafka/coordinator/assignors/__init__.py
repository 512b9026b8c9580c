"""Ways to share out the partitions of a group among its members."""
