"""Reading the logs of partitions: what a consumer and a reader of ranges have in common. Pure."""
