"""Push a client's metrics to the brokers that ask for them (KIP-714)."""
