"""An import path of aiokafka. The class is `aiokafka.producer.sequencer.Sequencer`."""

from __future__ import annotations

from aiokafka.producer.sequencer import Sequencer as TransactionManager

__all__ = ["TransactionManager"]
