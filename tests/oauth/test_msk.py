"""Tokens for Amazon MSK: signed as AWS says, and as botocore signs."""

from __future__ import annotations

import base64
import datetime
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.session
import pytest
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    MetadataRetrievalError,
    ReadTimeoutError,
)

from aiokafka.errors import AuthenticationFailedError
from aiokafka.oauth import MskIamTokenProvider
from aiokafka.oauth._msk import AwsCredentials, presigned_token, signing_key
from tests.examples.scripts import run_script
from tests.oauth.support import PATIENCE_MS

NOW = datetime.datetime(2026, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
ACCESS, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION = "FwoGZXIvYXdz+/=="
VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
)


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def opened(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def test_the_signing_key_is_that_of_the_published_example() -> None:
    # From AWS's own description of Signature Version 4.
    key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215", "us-east-1", "iam")
    assert key.hex() == "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"


@pytest.mark.parametrize("session", [None, SESSION])
@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1"])
def test_the_signature_is_botocores(
    monkeypatch: pytest.MonkeyPatch, region: str, session: str | None
) -> None:
    class Frozen(datetime.datetime):
        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return NOW.replace(tzinfo=None)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return NOW

    if hasattr(botocore.auth, "get_current_datetime"):
        monkeypatch.setattr(
            botocore.auth, "get_current_datetime", lambda *a, **k: NOW.replace(tzinfo=None)
        )
    else:
        monkeypatch.setattr(botocore.auth.datetime, "datetime", Frozen)
    credentials = botocore.credentials.Credentials(ACCESS, SECRET, session)
    signer = botocore.auth.SigV4QueryAuth(credentials, "kafka-cluster", region, expires=900)
    request = botocore.awsrequest.AWSRequest(
        "GET",
        f"https://kafka.{region}.amazonaws.com/",
        params={"Action": "kafka-cluster:Connect"},
    )
    signer.add_auth(request)
    expected = parse_qs(urlsplit(request.url).query)
    found = urlsplit(opened(presigned_token(region, AwsCredentials(ACCESS, SECRET, session), NOW)))
    fields = parse_qs(found.query)
    assert fields.pop("User-Agent")[0].startswith("aiokafka/")
    assert fields == expected
    assert len(expected["X-Amz-Signature"][0]) == 64
    assert (found.scheme, found.netloc) == ("https", f"kafka.{region}.amazonaws.com")
    assert found.path == "/"


async def test_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    # As if botocore were not installed.
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    provider = MskIamTokenProvider(extensions={"a": "b"})
    token = await provider.token()
    assert token.isascii() and "=" not in token
    fields = parse_qs(urlsplit(opened(token)).query)
    assert fields["X-Amz-Expires"] == ["900"]
    assert fields["X-Amz-Security-Token"] == [SESSION]
    assert fields["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert SECRET not in opened(token)
    assert token not in repr(provider) and SECRET not in repr(AwsCredentials(ACCESS, SECRET))


async def test_credentials_and_region_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile work]\nregion = ap-south-1\n")
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n"
    )
    token = await MskIamTokenProvider(profile="work").token()
    assert "kafka.ap-south-1.amazonaws.com" in opened(token)
    assert ACCESS in opened(token)


async def test_no_credentials_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationFailedError, match="botocore found none"):
        await MskIamTokenProvider("us-east-1").token()
    with pytest.raises(AuthenticationFailedError, match="botocore could not"):
        await MskIamTokenProvider("us-east-1", profile="missing").token()
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    with pytest.raises(AuthenticationFailedError, match="AWS_ACCESS_KEY_ID"):
        await MskIamTokenProvider("us-east-1").token()


def of_a_container() -> Exception:
    try:
        try:
            raise MetadataRetrievalError(error_msg="Could not connect")
        except MetadataRetrievalError:
            raise CredentialRetrievalError(provider="container-role", error_msg="away") from None
    except CredentialRetrievalError as error:
        found: Exception = error
        return found


def refused(status: int, code: str) -> Exception:
    answer = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}
    error: Exception = ClientError(answer, "AssumeRoleWithWebIdentity")
    return error


OUTAGES = [
    EndpointConnectionError(endpoint_url="https://sts.amazonaws.com/"),
    ReadTimeoutError(endpoint_url="https://sts.amazonaws.com/"),
    of_a_container(),
    refused(503, "ServiceUnavailable"),
    refused(400, "Throttling"),
    FileNotFoundError("the web identity token"),
]
REFUSALS = [
    refused(403, "AccessDenied"),
    CredentialRetrievalError(provider="custom-process", error_msg="exit code 1"),
]


@pytest.mark.parametrize("error", [*OUTAGES, *REFUSALS], ids=repr)
async def test_an_outage_of_aws_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A client that starts gives up at a refusal, and tries again after an outage."""

    refusal = refused(403, "SecondAttempt")
    errors = [error, refusal]

    def fail(session: botocore.session.Session) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(botocore.session.Session, "get_credentials", fail)
    last = refusal if error in OUTAGES else error
    with pytest.raises(AuthenticationFailedError, match=re.escape(str(last))):
        await MskIamTokenProvider("us-east-1", token_timeout_ms=PATIENCE_MS).token()
    assert errors == ([] if error in OUTAGES else [refusal])


@pytest.mark.parametrize("region", [None, "", "us east", "a/b"])
async def test_a_region_is_needed(region: str | None) -> None:
    with pytest.raises(ValueError, match="AWS_REGION"):
        MskIamTokenProvider(region)


async def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    output = await run_script("msk_iam.py", "--region", "eu-west-1", "--dry-run")
    assert output == (
        f"kafka-cluster:Connect at kafka.eu-west-1.amazonaws.com\nas {ACCESS}, for 900 s\n"
    )
