"""Make the TLS settings that clients take as `ssl_context`."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

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
    certdata: str | bytes | None = None,
    keydata: str | bytes | None = None,
    ciphers: str | None = None,
) -> ssl.SSLContext:
    """Return TLS settings that check the broker's certificate and host name.

    Args:
        cafile: Certificates of the authorities to trust, as a PEM file. Without `cafile`, `capath`
            and `cadata` the system's authorities are trusted.
        capath: The same as a directory.
        cadata: The same as PEM text (DER bytes).
        certfile: The client's own certificate chain in PEM, if the broker asks for it.
        keyfile: Its key in PEM; it may be in `certfile` as well.
        password: Of an encrypted key.
        crlfile: PEM file of revoked certificates; the broker's own certificate is then checked
            against it.
        certdata: As `certfile`, but PEM text, for certificates that come from a secret store (they
            never get to a disk where the system has files in memory).
        keydata: As `keyfile`, but PEM text.
        ciphers: The cipher suites to allow up to TLS 1.2, in OpenSSL's notation.

    For a broker whose certificate does not carry the host name that clients use, set
    `check_hostname = False` on the result. Where certificates are replaced while the program runs,
    give clients a function that calls this one as their `ssl_context`.

    Raises OSError for a missing file, ssl.SSLError for unusable content, ValueError for arguments
    that do not go together and for an encrypted key without its password.
    """
    _check_own_certificate(certfile, keyfile, certdata, keydata)
    context = ssl.create_default_context(
        ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata
    )
    if ciphers:
        context.set_ciphers(ciphers)
    if certfile:
        _load_chain(context, certfile, keyfile, password)
    elif certdata:
        with _as_file(certdata, keydata) as path:
            _load_chain(context, path, None, password)
    if crlfile:
        context.load_verify_locations(crlfile)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context


def _check_own_certificate(
    certfile: str | None,
    keyfile: str | None,
    certdata: str | bytes | None,
    keydata: str | bytes | None,
) -> None:
    if keyfile and not certfile:
        raise ValueError("keyfile: needs certfile, the certificate that belongs to the key")
    if keydata and not certdata:
        raise ValueError("keydata: needs certdata, the certificate that belongs to the key")
    if certfile and certdata:
        raise ValueError("certdata: the certificate is given as certfile already")


def _load_chain(
    context: ssl.SSLContext, certfile: str, keyfile: str | None, password: str | bytes | None
) -> None:
    # Without a function OpenSSL would ask at the terminal.
    secret = _no_password if password is None else password
    try:
        context.load_cert_chain(certfile, keyfile, secret)
    except ssl.SSLError as error:
        # OpenSSL says no more than "PEM lib" for most of these.
        raise ssl.SSLError(
            error.errno,
            "the client's certificate and key are of no use: they must be PEM and belong together, "
            f"and so must an encrypted key and its password ({error.reason or error})",
        ) from error


def _no_password() -> str:
    raise ValueError("password: the client's key is encrypted and needs it")


@contextlib.contextmanager
def _as_file(*texts: str | bytes | None) -> Iterator[str]:
    """Write `texts` to a file and yield its path while the block lasts: OpenSSL reads only files.

    The key in it is secret, so the file is in memory where the system can do that.
    """
    parts = [text.encode() if isinstance(text, str) else text for text in texts if text]
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.memfd_create("certificate")
            path = f"/proc/self/fd/{descriptor}"
        except (AttributeError, OSError):
            descriptor, path = tempfile.mkstemp()
            stack.callback(os.unlink, path)
        stack.callback(os.close, descriptor)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(b"\n".join(parts) + b"\n")
        yield path
