"""Addresses of key services: keys in the clear travel over TLS, or never leave the machine."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _guarded(address: str) -> str:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("no address; write https://HOST or https://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("no address; write https://HOST or https://HOST:PORT")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise ValueError("http would show keys to the network; write https, or an address of this machine")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("an address holds no credentials and no query; leave them out")
    return address.rstrip("/")


Endpoint = Annotated[str, Field(max_length=2048), AfterValidator(_guarded)]
