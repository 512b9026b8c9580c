"""Import path of aiokafka: the state of a producer and of its transaction."""

from __future__ import annotations

from aiokafka.producer.transactions.state import TransactionState
from aiokafka.producer.transactions.view import TransactionView as TransactionManager

__all__ = ["TransactionManager", "TransactionState"]
