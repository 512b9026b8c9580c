"""Traces and metrics for OpenTelemetry, by its conventions for messaging systems (extra
`otel`)."""

from aiokafka.otel._clients import observe_clients
from aiokafka.otel._consumer import ConsumerTelemetry
from aiokafka.otel._producer import ProducerTelemetry

__all__ = ["ConsumerTelemetry", "ProducerTelemetry", "observe_clients"]
