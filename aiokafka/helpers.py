"""Make the TLS settings that clients take as `ssl_context`."""

from __future__ import annotations

import ssl

__all__ = ["create_ssl_context"]


def create_ssl_context(
    *,
    cafile: str | None = None,
    capath: str | None = None,
    cadata: str | bytes | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: str | bytes | None = None,
    crlfile: str | None = None,
) -> ssl.SSLContext:
    """TLS settings that check the broker's certificate and host name.

    cafile, capath, cadata: certificates of the authorities to trust, as a PEM file, a directory, or
    PEM text (DER bytes); without any of them the system's authorities are trusted. certfile,
    keyfile, password: the client's own certificate chain and key in PEM, if the broker asks for it;
    the key may be in the same file, and encrypted with `password`. crlfile: PEM file of revoked
    certificates; the broker's own certificate is then checked against it.

    For a broker whose certificate does not carry the host name that clients use, set
    `check_hostname = False` on the result. Raises OSError for a missing file, ssl.SSLError for
    unusable content, ValueError for a key without a certificate.
    """
    if keyfile and not certfile:
        raise ValueError("keyfile: needs certfile, the certificate that belongs to the key")
    context = ssl.create_default_context(
        ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata
    )
    if certfile:
        context.load_cert_chain(certfile, keyfile, password)
    if crlfile:
        context.load_verify_locations(crlfile)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context
