"""The names of aiokafka 0.14 that nothing in this package needs: for programs that import them."""
