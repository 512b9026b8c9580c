"""Belong to a group: join by either protocol, hand partitions over, commit offsets."""
