"""The producer."""

from aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
