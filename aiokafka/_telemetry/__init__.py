"""Push a client's metrics to brokers that subscribe to them (KIP-714)."""
