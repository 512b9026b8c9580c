"""Names of aiokafka 0.14, for programs that import them. The library itself does not use them."""
