"""Programs of other projects, unchanged, with this library in the place of aiokafka."""
