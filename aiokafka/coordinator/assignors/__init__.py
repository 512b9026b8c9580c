"""Ways to assign the partitions of a group to its members."""
