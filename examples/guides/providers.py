"""Connect to Kafka where others run it: what each of them wants from a client.

Each function returns options that all clients take. Run as a program it takes the name of such a
function, and its arguments from the environment (BOOTSTRAP and so on); it prints the brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.oauth import ClientCredentialsTokenProvider, MskIamTokenProvider
from aiokafka.options import ClientOptions, ProducerOptions


def confluent_cloud(bootstrap: str, api_key: str, api_secret: str) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": api_key,
        "sasl_plain_password": api_secret,
    }


def confluent_cloud_oauth(
    bootstrap: str,
    token_url: str,
    client_id: str,
    client_secret: str,
    cluster: str,
    pool: str,
) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": ClientCredentialsTokenProvider(
            token_url,
            client_id=client_id,
            client_secret=client_secret,
            extensions={"logicalCluster": cluster, "identityPoolId": pool},
        ),
    }


def msk_iam(bootstrap: str, region: str) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": MskIamTokenProvider(region),
    }


def msk_scram(bootstrap: str, sasl_username: str, sasl_password: str) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": sasl_username,
        "sasl_plain_password": sasl_password,
    }


def event_hubs(bootstrap: str, connection_string: str) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "$ConnectionString",
        "sasl_plain_password": connection_string,
        **EVENT_HUBS_TIMES,
    }


def event_hubs_entra(
    bootstrap: str, tenant: str, client_id: str, client_secret: str
) -> ClientOptions:
    namespace = bootstrap.partition(":")[0]
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": ClientCredentialsTokenProvider(
            f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",
            client_id=client_id,
            client_secret=client_secret,
            scope=f"https://{namespace}/.default",
        ),
        **EVENT_HUBS_TIMES,
    }


# Azure closes a connection that was idle for four minutes.
EVENT_HUBS_TIMES: ClientOptions = {
    "connections_max_idle_ms": 180_000,
    "metadata_max_age_ms": 180_000,
    "request_timeout_ms": 60_000,
}
# A larger request closes the connection.
EVENT_HUBS_PRODUCER: ProducerOptions = {"max_request_size": 1_000_000}


def aiven_certificate(bootstrap: str, folder: str) -> ClientOptions:
    files = Path(folder)
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(
            cafile=str(files / "ca.pem"),
            certfile=str(files / "service.cert"),
            keyfile=str(files / "service.key"),
        ),
    }


def aiven_scram(
    bootstrap: str, cafile: str, sasl_username: str, sasl_password: str
) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=cafile),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": sasl_username,
        "sasl_plain_password": sasl_password,
    }


def redpanda(
    bootstrap: str, sasl_username: str, sasl_password: str, cafile: str | None = None
) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        # Without cafile, as in Redpanda Cloud, the authorities of the system are trusted.
        "ssl_context": create_ssl_context(cafile=cafile),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": sasl_username,
        "sasl_plain_password": sasl_password,
    }


def strimzi_certificate(bootstrap: str, cluster_secret: str, user_secret: str) -> ClientOptions:
    def context() -> ssl.SSLContext:
        # For each new connection: the operator renews certificates, and mounted files follow.
        return create_ssl_context(
            cafile=f"{cluster_secret}/ca.crt",
            certfile=f"{user_secret}/user.crt",
            keyfile=f"{user_secret}/user.key",
        )

    return {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": context}


def strimzi_scram(bootstrap: str, cluster_secret: str, user_secret: str) -> ClientOptions:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": lambda: create_ssl_context(cafile=f"{cluster_secret}/ca.crt"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": Path(user_secret).name,
        "sasl_plain_password": lambda: Path(user_secret, "password").read_text(),
    }


RECIPES: dict[str, Callable[..., ClientOptions]] = {
    recipe.__name__: recipe
    for recipe in (
        *(confluent_cloud, confluent_cloud_oauth, msk_iam, msk_scram, event_hubs),
        *(event_hubs_entra, aiven_certificate, aiven_scram, redpanda),
        *(strimzi_certificate, strimzi_scram),
    )
}


def chosen(recipe: Callable[..., ClientOptions]) -> ClientOptions:
    """Call it with arguments from the environment, where no other user sees the secrets."""
    arguments = {}
    for name, parameter in inspect.signature(recipe).parameters.items():
        value = os.environ.get(name.upper())
        if value is not None:
            arguments[name] = value
        elif parameter.default is parameter.empty:
            raise SystemExit(f"{name.upper()} is not set in the environment")
    return recipe(**arguments)


async def show_brokers(options: ClientOptions) -> None:
    async with AIOKafkaAdminClient(**options) as admin:
        for broker in (await admin.brokers.describe_cluster()).brokers:
            print(f"broker {broker.id}: {broker.host}:{broker.port}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    recipe = RECIPES[parser.parse_args().recipe]
    try:
        asyncio.run(show_brokers(chosen(recipe)))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
