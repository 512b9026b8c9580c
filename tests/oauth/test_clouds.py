"""Tokens of Azure managed identities and of Google's metadata server."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.oauth import AzureManagedIdentityTokenProvider, GcpMetadataTokenProvider
from tests.oauth.identity_provider import claims_of, decoded, unpadded
from tests.oauth.support import QUICK

RESOURCE = "https://orders.servicebus.windows.net"


class Metadata:
    """A metadata service with responses by path, each a status and a body; a list: in turn."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []
        handler = type("Handler", (_Handler,), {"metadata": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    metadata: Metadata

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        self.metadata.asked.append((parts.path, query, dict(self.headers)))
        found = self.metadata.responses.get(parts.path, (404, {"error": "nothing here"}))
        status, content = found.pop(0) if isinstance(found, list) else found
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "GCE_METADATA_HOST", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    # No proxy may get these requests.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    found = Metadata()
    yield found
    found.close()


# -- Azure


def azure(metadata: Metadata, **options: Any) -> AzureManagedIdentityTokenProvider:
    url = f"http://{metadata.host}/metadata/identity/oauth2/token"
    return AzureManagedIdentityTokenProvider(
        RESOURCE, **{"endpoint_url": url, **QUICK, "token_timeout_ms": 30_000, **options}
    )


@pytest.mark.parametrize("client_id", [None, "an-identity"])
async def test_the_instance_metadata_service_gives_a_token(
    metadata: Metadata, client_id: str | None
) -> None:
    path = "/metadata/identity/oauth2/token"
    # As Azure has it, numbers are strings.
    metadata.responses[path] = 200, {"access_token": "secret", "expires_in": "86399"}
    provider = azure(metadata, client_id=client_id)
    assert [await provider.token() for _ in range(2)] == ["secret", "secret"]
    ((asked, query, headers),) = metadata.asked
    named = {} if client_id is None else {"client_id": client_id}
    assert asked == path
    assert query == {"api-version": "2018-02-01", "resource": RESOURCE, **named}
    assert headers["Metadata"] == "true"
    assert "secret" not in repr(provider)


async def test_an_app_service_gives_a_token(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{metadata.host}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "of-this-app")
    metadata.responses["/msi/token"] = 200, {"access_token": "secret", "expires_in": 3600}
    provider = AzureManagedIdentityTokenProvider(RESOURCE)
    assert await provider.token() == "secret"
    ((_, query, headers),) = metadata.asked
    assert query == {"api-version": "2019-08-01", "resource": RESOURCE}
    assert headers["X-IDENTITY-HEADER"] == "of-this-app"


async def test_a_service_that_is_being_updated_is_asked_again(metadata: Metadata) -> None:
    token = {"access_token": "secret", "expires_in": "3600"}
    metadata.responses["/metadata/identity/oauth2/token"] = [
        *((status, {"error": "later"}) for status in (404, 410, 429, 500)),
        (200, token),
    ]
    assert await azure(metadata).token() == "secret"
    assert len(metadata.asked) == 5


async def test_a_machine_without_the_identity_is_refused(metadata: Metadata) -> None:
    refused = {"error": "invalid_request", "error_description": "Identity not found"}
    metadata.responses["/metadata/identity/oauth2/token"] = 400, refused
    with pytest.raises(AuthenticationFailedError, match="invalid_request: Identity not found"):
        await azure(metadata).token()
    assert len(metadata.asked) == 1


async def test_outside_of_azure_nothing_answers(metadata: Metadata) -> None:
    url = f"http://{metadata.host}/metadata/identity/oauth2/token"
    metadata.close()
    with pytest.raises(KafkaConnectionError, match="no token within"):
        await azure(metadata, endpoint_url=url, token_timeout_ms=200).token()


# -- Google Cloud

ACCOUNTS = "/computeMetadata/v1/instance/service-accounts/"


def gcp(metadata: Metadata, **options: Any) -> GcpMetadataTokenProvider:
    return GcpMetadataTokenProvider(metadata_host=metadata.host, **{**QUICK, **options})


@pytest.mark.parametrize("account", ["default", "orders@shop.iam.gserviceaccount.com"])
async def test_tokens_for_the_managed_service(metadata: Metadata, account: str) -> None:
    email = "orders@shop.iam.gserviceaccount.com"
    access = {"access_token": "ya29.secret", "expires_in": 3599, "token_type": "Bearer"}
    metadata.responses[f"{ACCOUNTS}{account}/token"] = 200, access
    metadata.responses[f"{ACCOUNTS}{account}/email"] = 200, email
    token = await gcp(metadata, service_account=account).token()
    header, _, signature = token.split(".")
    assert decoded(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = claims_of(token)
    assert (claims["iss"], claims["scope"], claims["sub"]) == ("Google", "kafka", email)
    assert 3000 < claims["exp"] - time.time() <= 3600
    padded = signature + "=" * (-len(signature) % 4)
    assert base64.urlsafe_b64decode(padded) == b"ya29.secret"
    assert all(headers["Metadata-Flavor"] == "Google" for _, _, headers in metadata.asked)


async def test_signed_tokens_for_an_audience(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata.host)
    claims = unpadded(json.dumps({"exp": time.time() + 3600}).encode())
    metadata.responses[f"{ACCOUNTS}default/identity"] = 200, f"e30.{claims}.c2ln\n"
    assert await GcpMetadataTokenProvider(audience="kafka").token() == f"e30.{claims}.c2ln"
    ((_, query, _),) = metadata.asked
    assert query == {"audience": "kafka", "format": "full"}


@pytest.mark.parametrize("audience", [None, "kafka"])
async def test_a_machine_without_the_account_is_refused(
    metadata: Metadata, audience: str | None
) -> None:
    with pytest.raises(AuthenticationFailedError, match="HTTP 404: nothing here"):
        await gcp(metadata, audience=audience).token()


async def test_nonsense_is_no_token(metadata: Metadata) -> None:
    metadata.responses[f"{ACCOUNTS}default/identity"] = 200, "<html>no token</html>"
    with pytest.raises(AuthenticationFailedError, match="unexpected response"):
        await gcp(metadata, audience="kafka").token()
    metadata.responses[f"{ACCOUNTS}default/identity"] = 200, "no.token"
    with pytest.raises(AuthenticationFailedError, match="not a token"):
        await gcp(metadata, audience="kafka").token()


# -- arguments


@pytest.mark.parametrize("resource", ["", None])
def test_wrong_resources(resource: Any) -> None:
    with pytest.raises(ValueError, match="resource: must be a URL"):
        AzureManagedIdentityTokenProvider(resource)


def test_other_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="endpoint_url: must be http"):
        AzureManagedIdentityTokenProvider(RESOURCE, endpoint_url="ftp://x/y")
    with pytest.raises(TypeError, match="client_id: must be a string or None"):
        AzureManagedIdentityTokenProvider(RESOURCE, client_id=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="service_account: must be"):
        GcpMetadataTokenProvider(service_account="")
    with pytest.raises(TypeError, match="audience: must be a string or None"):
        GcpMetadataTokenProvider(audience=5)  # type: ignore[arg-type]
