"""Tokens in simulated time, which goes by as fast for them as for the brokers."""

from __future__ import annotations

import asyncio
import base64
import json

from aiokafka import AIOKafkaProducer
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
