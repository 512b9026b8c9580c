"""Refresh the metadata of the cluster: from which broker, when, and for which topics."""
