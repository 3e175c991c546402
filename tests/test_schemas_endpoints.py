"""Addresses of key services: what may hold keys in the clear is TLS, or this machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from schemas.endpoints import LOOPBACK, Endpoint

ENDPOINT: TypeAdapter[str] = TypeAdapter(Endpoint)
LABELS = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
HOSTS = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PORTS = st.integers(1, 65535)


def said_of(address: str) -> str:
    """What a refusal says, and that it does not repeat the address."""
    with pytest.raises(ValidationError) as caught:
        ENDPOINT.validate_python(address)
    [error] = caught.value.errors(include_input=False, include_url=False)
    assert address not in error["msg"]
    return error["msg"]


@given(host=HOSTS.filter(lambda host: host not in LOOPBACK), port=PORTS)
def test_plain_http_to_another_host_is_refused_and_https_is_not(host: str, port: int) -> None:
    """Also where a host's name begins or ends with one of this machine."""
    for name in (host, f"localhost.{host}", f"127.0.0.1.{host}", f"{host}.localhost"):
        assert "http would show keys to the network" in said_of(f"http://{name}:{port}")
        assert ENDPOINT.validate_python(f"https://{name}:{port}") == f"https://{name}:{port}"


@given(port=PORTS)
def test_plain_http_to_this_machine_is_allowed(port: int) -> None:
    """An agent or a sidecar beside the process takes plain requests."""
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "[::1]"):
        assert ENDPOINT.validate_python(f"http://{host}:{port}/") == f"http://{host}:{port}"


@pytest.mark.parametrize(
    "address",
    ["http://localhost@keys.example:80", "http://127.0.0.1:80@keys.example", "http://0.0.0.0", "http://2130706433"],
)
def test_address_that_only_looks_like_this_machine_is_refused(address: str) -> None:
    """What stands before an @ is no host, and other spellings of an address are not guessed at."""
    assert "http would show keys to the network" in said_of(address)


@pytest.mark.parametrize(
    "address",
    ["", "vault", "vault:8200", "//vault", "ftp://vault", "file:///etc", "https://", "https://a:b", "https://[::1"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """The message says how one is written."""
    with pytest.raises(ValidationError, match="no address; write https://HOST or https://HOST:PORT"):
        ENDPOINT.validate_python(address)


@pytest.mark.parametrize("rest", ["user:secret@vault", "user@vault", "vault?token=secret", "vault#secret"])
def test_address_with_credentials_or_query_is_refused_and_not_told(rest: str) -> None:
    """Addresses are shown in messages and logs, so they may hold no secret."""
    assert "an address holds no credentials and no query" in said_of(f"https://{rest}")
