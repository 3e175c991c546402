"""One connection to HashiCorp Vault: its settings, its calls, and what its refusals mean here.

Requests are made by hvac; their forms are those of https://developer.hashicorp.com/vault/api-docs. The token is read at
each call, so a renewed one is used at once. No redirect is followed: it would carry token and keys to another address.
Certificates are judged as hvac does (``VAULT_CACERT``). Vault's messages name paths and policies, so they are only
searched for the few phrases that its status codes do not tell apart.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from schemas.closed import read_closed
from schemas.endpoints import Endpoint
from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, TemporaryError, UsageError
from schemas.extras import optional_library
from schemas.settings import Settings, secret_variable

EXTRA = "vault"
MAX_TOKEN_BYTES = 1 << 14
FIRST_PAUSE_SECONDS = 0.1

# Status 400, or 500 in some versions: https://github.com/hashicorp/vault/issues/10842.
_DAMAGED = b"message authentication failed"
# Of a version below ``min_decryption_version``, and of a key that is not there; both come with status 400.
_OUT_OF_USE = (b"disallowed by policy (too old)", b"encryption key not found")
_NOT_YET = frozenset({412, 429})


class VaultSettings(Settings):
    """Where keys are, and by which token they are reached.

    Attributes:
        address: Of the server, https, or http on this machine.
        mount: Where the transit engine is mounted.
        prefix: Names of keys and policies begin with it; one prefix for each corpus. Vault has no capitals in names of
            policies.
        token_variable: The environment variable that holds the token, unless there is a file.
        token_file: A file of mode 0600 that holds the token.
        timeout_seconds: For a connection, and for an answer.
        num_attempts: Of a call that met a failure that may pass.
    """

    address: Endpoint
    mount: str = Field(default="transit", pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$", max_length=128)
    prefix: str = Field(default="exactppl", pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    token_variable: str = Field(default="VAULT_TOKEN", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
    token_file: Path | None = None
    timeout_seconds: float = Field(default=10.0, gt=0, le=600)
    num_attempts: int = Field(default=5, ge=1, le=20)


@dataclass(frozen=True)
class Vault:
    """A client that is made at the first call; a copy in another process makes its own."""

    settings: VaultSettings

    def __reduce__(self) -> tuple[type[Vault], tuple[VaultSettings]]:
        return Vault, (self.settings,)

    def call(self, method: str, path: str, *, where: str, absent: bool = False, **parameters: Any) -> dict[str, Any]:
        """Answer of one request; empty where the service has nothing to say.

        Args:
            method: Of HTTP.
            path: Below ``/v1/``.
            where: How a message begins.
            absent: That nothing is there is no failure; the answer is then empty.
            **parameters: Of the request.

        Raises:
            AccessDeniedError: not granted, no token, or the key is out of use.
            IntegrityError: the wrapped key is damaged, or of another key or context.
            TemporaryError: throttled, sealed, not reachable, or a failure of the service.
            UsageError: anything else; hvac is not installed.
        """
        for attempt in range(self.settings.num_attempts - 1):
            try:
                return self._asked(method, path, where, absent=absent, parameters=parameters)
            except TemporaryError:
                time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
        return self._asked(method, path, where, absent=absent, parameters=parameters)

    def _asked(self, method: str, path: str, where: str, *, absent: bool, parameters: dict[str, Any]) -> dict[str, Any]:
        client = self._client
        client.token = _token(self.settings, where)
        try:
            answer = client.adapter.request(method, f"v1/{path}", raise_exception=False, json=parameters or None)
        except OSError as error:  # what requests raises, of which hvac is made
            raise _failure(error, where) from None
        if isinstance(answer, dict):
            return answer
        if answer.status_code == 204 or (absent and answer.status_code == 404):
            return {}
        raise _refusal(answer.status_code, answer.content, where, unwraps="ciphertext" in parameters)

    @cached_property
    def _client(self) -> Any:
        client = optional_library("hvac", extra=EXTRA).Client(
            url=self.settings.address,
            token="",  # read at each call; absent would let hvac look for one
            timeout=self.settings.timeout_seconds,
            allow_redirects=False,
        )
        if self.settings.address.startswith("http:"):
            # A proxy of the environment would get what must not leave this machine in the clear.
            client.adapter.session.trust_env = False
        return client


def _token(settings: VaultSettings, where: str) -> str:
    if settings.token_file is not None:
        content = read_closed(
            settings.token_file, what="token", absent="give this principal its own", max_bytes=MAX_TOKEN_BYTES
        )
        token = content.decode("ascii", errors="replace").strip()
    else:
        token = secret_variable(settings.token_variable) or ""
    if not token:
        raise AccessDeniedError(f"{where}: no token for Vault; set {settings.token_variable}, or name a token file")
    if not re.fullmatch(r"[!-~]+", token):
        raise UsageError(f"{where}: the token for Vault has blanks or other odd characters; set it anew")
    return token


def _refusal(status: int, content: bytes, where: str, *, unwraps: bool) -> PipelineError:
    """What a status means; the phrases tell a key out of use from a damaged wrapping, and that from a failure."""
    if status in (401, 403):
        return AccessDeniedError(f"{where}: Vault refuses ({status}); ask whoever administers the keys for a grant")
    if any(phrase in content for phrase in _OUT_OF_USE):
        return AccessDeniedError(
            f"{where}: no such key in use; it was retired, or the address, mount or prefix is another one"
        )
    if unwraps and (status == 400 or _DAMAGED in content):
        return IntegrityError(
            f"{where}: the wrapped key does not open; it is damaged or of another build or shard; restore the file"
        )
    if status in _NOT_YET or status >= 500:
        return TemporaryError(f"{where}: Vault failed for now, or is sealed (status {status}); run again")
    return UsageError(f"{where}: Vault cannot do this (status {status}); look at its address, its mount, and its log")


def _failure(error: OSError, where: str) -> PipelineError:
    """What an exception of requests means, by its type alone: its text names hosts."""
    name = type(error).__name__
    if name in ("SSLError", "OSError"):
        return UsageError(
            f"{where}: no trusted connection to Vault ({name}); look at its address, and set VAULT_CACERT right"
        )
    return TemporaryError(f"{where}: Vault cannot be reached ({name}); look at the network, and run again")
