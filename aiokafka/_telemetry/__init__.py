"""Pushes the metrics of a client to brokers that subscribe to them (KIP-714)."""
