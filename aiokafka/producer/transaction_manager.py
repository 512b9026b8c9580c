"""Import path of aiokafka, kept as a shim: the class is `Sequencer` of `sequencer.py`."""

from __future__ import annotations

from aiokafka.producer.sending.sequencer import Sequencer as TransactionManager

__all__ = ["TransactionManager"]
