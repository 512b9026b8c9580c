"""Reading records: the consumer and what it is made of."""

from aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
