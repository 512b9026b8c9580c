"""Connections to brokers: the only place with transports and TLS."""
