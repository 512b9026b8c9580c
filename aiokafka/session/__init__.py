"""Consume, process and produce in transactions."""

from __future__ import annotations

from aiokafka.session.session import TransactionalSession
from aiokafka.session.transaction import SessionTransaction

__all__ = ["SessionTransaction", "TransactionalSession"]
