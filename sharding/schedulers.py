"""Which scheduler a build speaks to, and whether it may: whoever reaches a Dask scheduler can run code on its workers.

Beyond the machine itself that needs TLS with certificates on both sides, or somebody who says that the network is
trusted. Record text crosses the network on shared storage only, but tasks, results and paths would be in the clear.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import IntegrityError, UsageError
from schemas.seals import label, opened

ENCRYPTED = ("tls", "wss")
# Only another thread of the same process has such an address.
WITHIN_THE_PROCESS = "inproc"
MAX_FILE_BYTES = 1 << 20
FLAGS = "--tls-ca, --tls-cert and --tls-key"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the cluster's own authority, and the certificate and key by which it knows us."""

    ca: Path
    cert: Path
    key: Path

    def check(self) -> None:
        """They can be used.

        Raises:
            UsageError: one is no PEM file, the key has a password, or it is another certificate's.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError):
            raise UsageError(f"{label(self.ca)} (--tls-ca): no certificates in PEM form; name another file") from None
        try:
            # Without an answer to give, the password would be asked for on the terminal, again in every process.
            context.load_cert_chain(self.cert, self.key, password=b"")
        except (OSError, ValueError):
            raise UsageError(
                f"{label(self.cert)} (--tls-cert), {label(self.key)} (--tls-key): no certificate in PEM form with its "
                "key, or the key has a password; name others"
            ) from None

    def security(self) -> Any:
        """As Dask takes them; nothing is spoken in the clear then."""
        from distributed.security import Security

        return Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.cert),
            tls_client_key=str(self.key),
            require_encryption=True,
        )


def certificates(ca: Path | None, cert: Path | None, key: Path | None) -> Certificates | None:
    """All three files, or none.

    Raises:
        UsageError: some are given and some are not.
    """
    if ca and cert and key:
        return Certificates(ca.absolute(), cert.absolute(), key.absolute())
    if ca or cert or key:
        raise UsageError(f"TLS: {FLAGS} belong together; give all three")
    return None


def address_in(path: Path) -> str:
    """The address in a scheduler's connection file.

    Raises:
        UsageError: the file holds none.
    """
    try:
        with opened(path) as file:
            address = json.loads(file.read(MAX_FILE_BYTES))["address"]
    except (IntegrityError, ValueError, KeyError, TypeError, RecursionError):
        address = None
    if not isinstance(address, str):
        raise UsageError(f"{label(path)}: no connection file of a scheduler; name the one that it wrote") from None
    return address


def check_address(address: str, tls: Certificates | None, *, insecure: bool) -> None:
    """A scheduler is reached in a way that was asked for.

    Raises:
        UsageError: certificates are missing, cannot be used or have no use, or the address is plain and not this
            machine's own.
    """
    scheme, host = _parts(address)
    if scheme in ENCRYPTED:
        if tls is None:
            raise UsageError(f"scheduler: {scheme}:// needs certificates; give {FLAGS}")
        tls.check()
        return
    if tls:
        raise UsageError(f"scheduler: {FLAGS} are of no use with {scheme}://; write tls://HOST:PORT")
    if not (insecure or scheme == WITHIN_THE_PROCESS or _is_loopback(host)):
        raise UsageError(
            f"scheduler: {scheme}:// to another machine is neither encrypted nor authenticated: anyone on the network "
            "could run code on the workers, and task results and paths would be in the clear (record text crosses the "
            f"network on shared storage only); use tls:// with {FLAGS}, or add --insecure if the network is trusted"
        )


def _parts(address: str) -> tuple[str, str]:
    """Scheme and host; an address without a scheme is tcp to Dask."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        scheme, rest = "tcp", address
    host = rest.rpartition(":")[0].removeprefix("[").removesuffix("]")
    return scheme.lower(), host


def _is_loopback(host: str) -> bool:
    """Names other than localhost are not looked up: the answer could be another a moment later."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
