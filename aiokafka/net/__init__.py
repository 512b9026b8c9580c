"""Connections to brokers: the only modules of the package that use transports and TLS."""
