"""Create the `ssl_context` of a client from certificate files or texts."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator

__all__ = ["create_ssl_context"]

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
# Encrypted keys in OpenSSL's old format begin with the headers Proc-Type and DEK-Info.
_ENCRYPTION = re.compile(r"\s*([A-Z][A-Za-z-]*:\s*\S+)")


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
    """Return an SSLContext that checks the broker's certificate and host name.

    Args:
        cafile: PEM file with the certificates of the trusted authorities. Without `cafile`,
            `capath` and `cadata` the authorities of the system are trusted.
        capath: Directory with the certificates of the trusted authorities.
        cadata: The certificates of the trusted authorities as PEM (str or bytes) or DER bytes.
        certfile: PEM file with the client's certificate chain, for brokers that require it.
        keyfile: PEM file with the client's key; `certfile` may contain the key instead.
        password: The password of an encrypted key.
        crlfile: PEM file with a certificate revocation list (CRL), against which the broker's own
            certificate is checked.
        certdata: The content of `certfile`, for certificates from a secret store. Where the system
            supports files in memory, the certificates and the key are never written to a disk.
        keydata: The content of `keyfile`.
        ciphers: The allowed cipher suites up to TLS 1.2, in OpenSSL's notation.

    PEM files and texts may have the formats that Java's clients accept (KIP-651): on one line, with
    spaces in place of line ends, or indented. `\\n` in place of line ends is accepted as well.

    If the broker's certificate does not have the host name that clients use, set
    `check_hostname = False` on the result. If certificates are replaced while the program runs,
    pass clients a function that calls this function as their `ssl_context`.

    Raises OSError for a missing file, ssl.SSLError for unusable content, ValueError for
    contradictory arguments and for an encrypted key without its password.
    """
    _check_own_certificate(certfile, keyfile, certdata, keydata)
    context = _trusting(cafile, capath, cadata)
    if ciphers:
        context.set_ciphers(ciphers)
    if certfile:
        _load_files(context, certfile, keyfile, password)
    elif certdata:
        texts = [_blocks("certdata", certdata), *([_blocks("keydata", keydata)] if keydata else [])]
        with _as_file(*texts) as path:
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


def _trusting(cafile: str | None, capath: str | None, cadata: str | bytes | None) -> ssl.SSLContext:
    """Return a context that trusts the given certificate authorities; without any, the authorities
    of the system."""
    given: str | bytes | None = cadata
    if cadata and (isinstance(cadata, str) or b"-----BEGIN" in cadata):
        given = _certificates("cadata", cadata)
    purpose = ssl.Purpose.SERVER_AUTH
    try:
        return ssl.create_default_context(purpose, cafile=cafile, capath=capath, cadata=given)
    except ssl.SSLError as error:
        if not cafile:
            raise ssl.SSLError(error.errno, f"cadata: {error.reason or error}") from error
        content = _content(cafile)
        if b"-----BEGIN" not in content:
            raise ssl.SSLError(
                error.errno, f"cafile={cafile!r} contains no certificate in PEM"
            ) from error
    context = ssl.create_default_context(
        purpose, capath=capath, cadata=_certificates(f"cafile={cafile!r}", content)
    )
    if given:
        context.load_verify_locations(cadata=given)
    return context


def _certificates(name: str, data: str | bytes) -> str:
    blocks = _blocks(name, data, only="CERTIFICATE")
    if not blocks:
        raise ssl.SSLError(0, f"{name} does not contain a certificate in PEM")
    return blocks


def _blocks(name: str, data: str | bytes, only: str = "") -> str:
    """Return the PEM blocks in `data`, reformatted with the line ends that OpenSSL needs.

    Text around the blocks is omitted, and also blocks whose label does not end in `only`.
    """
    text = data if isinstance(data, str) else data.decode("latin-1")
    # Properties files, environment variables and JSON may contain line ends as escapes.
    text = re.sub(r"\\[nr]?", "\n", text)
    found = _BLOCK.findall(text)
    whole = all(body.isascii() for _, body in found)
    if len(found) != text.count("-----BEGIN ") or not whole:
        raise ssl.SSLError(0, f"{name}: a PEM block does not end, or is damaged")
    if not found and not only:
        raise ssl.SSLError(0, f"{name} is not in PEM")
    return "".join(_block(label, body) for label, body in found if label.endswith(only))


def _block(label: str, body: str) -> str:
    lines = []
    at = 0
    while header := _ENCRYPTION.match(body, at):
        lines.append(header[1])
        at = header.end()
    if lines:
        lines.append("")
    coded = "".join(body[at:].split())
    lines += [coded[start : start + 64] for start in range(0, len(coded), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _content(path: str) -> bytes:
    # Do not read a pipe: OpenSSL has read it to its end already.
    if not os.path.isfile(path):
        return b""
    with open(path, "rb") as file:
        return file.read()


def _load_files(
    context: ssl.SSLContext, certfile: str, keyfile: str | None, password: str | bytes | None
) -> None:
    try:
        _load_chain(context, certfile, keyfile, password)
    except ssl.SSLError:
        # OpenSSL requires line ends in the right places: reformat the PEM, and load it again.
        files = [certfile, *([keyfile] if keyfile else [])]
        contents = [(path, _content(path)) for path in files]
        if not all(b"-----BEGIN" in content for _, content in contents):
            raise
        with _as_file(*(_blocks(path, content) for path, content in contents)) as path:
            _load_chain(context, path, None, password)


def _load_chain(
    context: ssl.SSLContext, certfile: str, keyfile: str | None, password: str | bytes | None
) -> None:
    # For an encrypted key without a password, OpenSSL would prompt at the terminal. `_no_password`,
    # which OpenSSL calls instead, raises an error.
    secret = _no_password if password is None else password
    try:
        context.load_cert_chain(certfile, keyfile, secret)
    except ssl.SSLError as error:
        # OpenSSL's own text is mostly "PEM lib", which does not name the cause.
        raise ssl.SSLError(
            error.errno,
            "the client's certificate and key cannot be used: they must be PEM and belong "
            "together, and the password must be that of an encrypted key "
            f"({error.reason or error})",
        ) from error


def _no_password() -> str:
    raise ValueError("password: the client's key is encrypted and needs it")


@contextlib.contextmanager
def _as_file(*texts: str) -> Iterator[str]:
    """Yield the path of a temporary file with `texts`, because OpenSSL reads certificates and keys
    only from files.

    The file may contain a secret key. Where the system supports this, the file exists in memory
    only.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.memfd_create("certificate")
            path = f"/proc/self/fd/{descriptor}"
        except (AttributeError, OSError):
            descriptor, path = tempfile.mkstemp()
            stack.callback(os.unlink, path)
        stack.callback(os.close, descriptor)
        with open(descriptor, "wb", closefd=False) as file:
            file.write("".join(texts).encode("latin-1"))
        yield path
