"""Refresh the metadata of the cluster: choice of the broker, schedule, and topics in use."""
