"""Chains of programs on a real cluster, under which everything is killed: see `chain.py`."""
