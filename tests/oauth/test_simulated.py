"""Tokens in simulated time, which goes by as fast for them as for the brokers."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.oauth import CachedTokenProvider, Token
from aiokafka.testing import Security
from aiokafka.testing.simulation import Simulation, simulate

LIFETIME = 600.0
HOURS = 2


class Issuer(CachedTokenProvider):
    """Tokens that say when they expire, in the time of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation
        self.issued = 0

    async def fetch(self) -> Token:
        self.issued += 1
        claims = {"sub": "alice", "exp": self._simulation.wall_time() + LIFETIME}
        parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
        encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
        return Token(".".join([*encoded, ""]), LIFETIME)


def test_tokens_are_replaced_in_time() -> None:
    async def main(simulation: Simulation) -> None:
        security, tokens = Security(), Issuer(simulation)
        async with (
            simulation.cluster(brokers=1, security=security) as cluster,
            AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=tokens,
            ) as producer,
        ):
            for _ in range(HOURS * 60):
                await producer.send_and_wait("orders", b"x")
                await asyncio.sleep(60)
        assert security.refusals == 0
        assert tokens.issued > HOURS * 3600 / LIFETIME

    simulate(main, limit_s=HOURS * 3600 + 600)


class Failing(Issuer):
    """A provider of the application's own, which may be out of order."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.works = True
        self.calls = 0

    async def token(self) -> str:
        self.calls += 1
        if not self.works:
            raise OSError("the identity provider is away")
        return (await self.fetch()).value


def test_a_provider_that_fails_is_asked_once_per_backoff_by_all_connections() -> None:
    async def main(simulation: Simulation) -> None:
        tokens = Failing(simulation)
        options: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": tokens,
        }
        async with simulation.cluster(brokers=3, security=Security()) as cluster:
            await cluster.create_topic("orders", 6)
            consumer = AIOKafkaConsumer(
                "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options
            )
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
            async with consumer, producer:
                await producer.send_and_wait("orders", b"before")
                assert (await consumer.getone()).value == b"before"
                tokens.works = False
                cluster.drop_connections()
                await asyncio.sleep(30)
                tokens.calls = 0
                await asyncio.sleep(60)
                # Once a second (`reconnect_backoff_max_ms`), give or take its jitter.
                assert 40 <= tokens.calls <= 75
                tokens.works = True
                await asyncio.gather(*(producer.send_and_wait("orders", b"x") for _ in range(9)))

    simulate(main, limit_s=600)
