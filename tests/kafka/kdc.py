"""`Kdc`: a Kerberos realm of our own, by MIT's KDC, that lives as long as a test module."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.kafka.guard import guard
from tests.kafka.processes import free_port

REALM = "AIOKAFKA.TEST"
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))

_KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
_KDC_CONF = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/kadm5.acl
    }}
"""


def missing_kerberos() -> str:
    """What to install before a KDC can run, as one sentence; "" if all is there."""
    missing = []
    if not all(shutil.which(tool, path=_PLACES) for tool in _TOOLS):
        missing.append("a KDC (Debian: krb5-kdc krb5-admin-server krb5-user)")
    if importlib.util.find_spec("gssapi") is None:
        missing.append("the package gssapi (Debian: libkrb5-dev, then pip install gssapi)")
    return "install " + " and ".join(missing) if missing else ""


class Kdc:
    """One realm and its KDC. Clients need `environment`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'no-cache'}",
            "KRB5_CLIENT_KTNAME": f"FILE:{folder / 'no-keytab'}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        names = {"realm": REALM, "port": self._port, "folder": self.folder}
        (self.folder / "krb5.conf").write_text(_KRB5_CONF.format(**names))
        (self.folder / "kdc.conf").write_text(_KDC_CONF.format(**names))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self.resume()

    def resume(self) -> None:
        """Start the process, at first or after `stop`."""
        with (self.folder / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_path("krb5kdc"), "-n", "-r", REALM],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        guard.add(self._process.pid)
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"the KDC does not serve: {(self.folder / 'kdc.log').read_text()}")

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            guard.remove(self._process.pid)
            self._process = None

    def keytab(self, principal: str) -> str:
        """Path of a keytab with new keys of a principal, which is made if it has to be."""
        path = self.folder / f"{principal.replace('/', '-')}-{time.monotonic_ns()}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal, check=False)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return str(path)

    def kinit(self, principal: str, keytab: str, cache: Path, lifetime: str = "1h") -> None:
        """Put a ticket of this lifetime into a cache, as a user does by hand."""
        arguments = ("-k", "-t", keytab, "-c", f"FILE:{cache}", "-l", lifetime, principal)
        self._run("kinit", *arguments)

    def _run(self, tool: str, *arguments: str, check: bool = True) -> None:
        done = subprocess.run(
            [_path(tool), *arguments],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
        if check and done.returncode:
            raise RuntimeError(f"{tool}: {done.stderr.decode()}")


def _path(tool: str) -> str:
    found = shutil.which(tool, path=_PLACES)
    assert found is not None
    return found
