"""Names of aiokafka 0.14 that only programs import; this package does not use them."""
