"""Messages for SASL authentication."""

from aiokafka.protocol.schema import I16, I64, Bytes, NStr, Request, Response, Str, field


class SaslHandshakeResponse(Response):
    error_code: I16 = 0
    mechanisms: list[Str]


class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=17, versions="0-1"):
    """Choose the SASL mechanism. After version 0 of this request, client and broker exchange SASL
    tokens without Kafka's headers."""

    mechanism: Str


class SaslAuthenticateResponse(Response):
    error_code: I16 = 0
    error_message: NStr
    auth_bytes: Bytes = field(secret=True)
    session_lifetime_ms: I64 = field("1+", default=0, ignorable=True)  # KIP-368


class SaslAuthenticateRequest(
    Request[SaslAuthenticateResponse], api_key=36, versions="0-2", flexible="2+"
):
    """Send the client's next SASL token; the response has the broker's token."""

    auth_bytes: Bytes = field(secret=True)
