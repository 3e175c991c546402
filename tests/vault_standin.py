"""A stand-in for Vault: its transit engine and ACL policies as the public API documentation has them, in this process.

It is not Vault. Real are the ciphers (AES-256-GCM), the derivation of a key for each context (HKDF), versions with
``min_decryption_version``, and policies by token: a path that no policy of the token names exactly is refused. Forms of
requests and answers: https://developer.hashicorp.com/vault/api-docs/secret/transit, ``.../system/policies`` and
``.../api-docs`` ("Error response", "HTTP status codes"). Left out is all that our calls do not use.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.http_servers import serving

ROOT_TOKEN = "hvs.root"
CAPABILITIES = {"POST": "update", "GET": "read", "DELETE": "delete"}
POLICY = re.compile(r'path "([^"*+]+)" \{\s*capabilities = \[("[a-z]+"(?:, "[a-z]+")*)\]\s*\}\s*')
FIXED = ("type", "derived", "convergent_encryption", "exportable", "allow_plaintext_backup")
Answer = tuple[int, dict[str, Any]]


class RefusedError(Exception):
    """An answer with a status that is no success."""

    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(status)
        self.status, self.errors = status, list(errors)


@dataclass
class TransitKey:
    """A named key: its form, the raw keys of its versions, and the oldest version that still opens."""

    form: dict[str, Any]
    versions: list[bytes]
    oldest: int = 1


@dataclass
class VaultStandIn:
    """What such a server knows, and which requests it got.

    Attributes:
        tokens: Which policies each token has; the root token may do everything.
        policies: By name, in lower case; the text, and the capabilities by path.
        asked: Method and path of each request.
    """

    port: int = 0
    tokens: dict[str, list[str]] = field(default_factory=dict)
    policies: dict[str, tuple[str, dict[str, set[str]]]] = field(default_factory=dict)
    keys: dict[str, TransitKey] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    @property
    def url(self) -> str:
        """Where to ask."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, token: str | None, body: dict[str, Any]) -> Answer:
        """Status and JSON of the answer to one request."""
        with self.lock:
            self.asked.append((method, path))
            try:
                self._authorise(method, path, token)
                return self._answer(method, path, body)
            except RefusedError as refused:
                return refused.status, {"errors": refused.errors}

    def _authorise(self, method: str, path: str, token: str | None) -> None:
        if token == ROOT_TOKEN:
            return
        names = self.tokens.get(token or "", [])
        granted = [self.policies[name][1].get(path, set()) for name in names if name in self.policies]
        if not any(CAPABILITIES.get(method, "none") in capabilities for capabilities in granted):
            raise RefusedError(403, "1 error occurred:\n\t* permission denied\n\n")

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        match method, path.split("/"):
            case _, ["sys", "policies", "acl", name]:
                return self._policy(method, name.lower(), body)
            case "POST", ["transit", "keys", name]:
                return self._make(name, body)
            case "GET", ["transit", "keys", name]:
                return self._read(name)
            case "POST", ["transit", "keys", name, "rotate"]:
                self._key(name).versions.append(secrets.token_bytes(32))
                return 204, {}
            case "POST", ["transit", "keys", name, "config"]:
                return self._configure(self._key(name), body)
            case "POST", ["transit", "datakey", "plaintext", name]:
                return 200, {"data": self._data_key(self._key(name), body)}
            case "POST", ["transit", "decrypt", name]:
                plaintext = _opened(self._key(name), body)
                return 200, {"data": {"plaintext": base64.b64encode(plaintext).decode()}}
            case "POST", ["transit", "rewrap", name]:
                key = self._key(name)
                return 200, {"data": {"ciphertext": _sealed(key, _opened(key, body), body)}}
        raise RefusedError(404, f"no handler for route '{path}'")

    def _policy(self, method: str, name: str, body: dict[str, Any]) -> Answer:
        if method == "DELETE":
            self.policies.pop(name, None)
            return 204, {}
        if method == "GET":
            if name not in self.policies:
                raise RefusedError(404)
            return 200, {"data": {"name": name, "policy": self.policies[name][0]}}
        text = str(body.get("policy", ""))
        if not text or POLICY.sub("", text):
            raise RefusedError(400, "failed to parse policy")
        found = {path: set(re.findall(r"[a-z]+", granted)) for path, granted in POLICY.findall(text)}
        self.policies[name] = (text, found)
        return 204, {}

    def _make(self, name: str, body: dict[str, Any]) -> Answer:
        if not re.fullmatch(r"\w(([\w.-]+)?\w)?", name):
            raise RefusedError(404, "unsupported path")
        if name not in self.keys:
            form = {"type": "aes256-gcm96", **dict.fromkeys(FIXED[1:], False)}
            form |= {key: value for key, value in body.items() if key in FIXED}
            self.keys[name] = TransitKey(form, [secrets.token_bytes(32)])
        return 204, {}

    def _read(self, name: str) -> Answer:
        if name not in self.keys:
            raise RefusedError(404)
        key = self.keys[name]
        versions = {str(version): 1442851412 for version in range(key.oldest, len(key.versions) + 1)}
        fields = {"name": name, "keys": versions, "min_decryption_version": key.oldest, "min_encryption_version": 0}
        return 200, {"data": {**key.form, **fields}}

    def _configure(self, key: TransitKey, body: dict[str, Any]) -> Answer:
        oldest = int(body.get("min_decryption_version", key.oldest))
        if not 1 <= oldest <= len(key.versions):
            raise RefusedError(400, f"cannot set min decryption version of {oldest}")
        key.oldest = oldest
        return 204, {}

    def _key(self, name: str) -> TransitKey:
        if name not in self.keys:
            raise RefusedError(400, "encryption key not found")
        return self.keys[name]

    def _data_key(self, key: TransitKey, body: dict[str, Any]) -> dict[str, str]:
        plaintext = secrets.token_bytes(int(body.get("bits", 256)) // 8)
        return {"plaintext": base64.b64encode(plaintext).decode(), "ciphertext": _sealed(key, plaintext, body)}


def _derived(key: TransitKey, version: int, body: dict[str, Any]) -> AESGCM:
    """The key of one version in one context; one that is not derived ignores the context."""
    raw = key.versions[version - 1]
    if not key.form["derived"]:
        return AESGCM(raw)
    context = base64.b64decode(body.get("context", ""))
    if not context:
        raise RefusedError(400, "missing 'context' for key derivation; the key was created using a derived key")
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=context).derive(raw))


def _sealed(key: TransitKey, plaintext: bytes, body: dict[str, Any]) -> str:
    version, nonce = len(key.versions), secrets.token_bytes(12)
    content = nonce + _derived(key, version, body).encrypt(nonce, plaintext, None)
    return f"vault:v{version}:{base64.b64encode(content).decode()}"


def _opened(key: TransitKey, body: dict[str, Any]) -> bytes:
    found = re.fullmatch(r"vault:v([0-9]+):(.*)", str(body.get("ciphertext", "")))
    if not found:
        raise RefusedError(400, "invalid ciphertext: no prefix")
    try:
        version, content = int(found[1]), base64.b64decode(found[2], validate=True)
    except ValueError:
        raise RefusedError(400, "invalid ciphertext: could not decode base64") from None
    if version > len(key.versions):
        raise RefusedError(400, "invalid ciphertext: version is too new")
    if version < key.oldest:
        raise RefusedError(400, "ciphertext or signature version is disallowed by policy (too old)")
    try:
        return _derived(key, version, body).decrypt(content[:12], content[12:], None)
    except (InvalidTag, ValueError):
        raise RefusedError(400, "cipher: message authentication failed") from None


@contextmanager
def vault_standin() -> Iterator[VaultStandIn]:
    """A stand-in on a free port, until the block ends."""
    standin = VaultStandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # one connection for many requests, as Vault has it
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.removeprefix("/v1/")
            body = json.loads(content) if content else {}
            status, answer = standin.answer(self.command, path, self.headers.get("X-Vault-Token"), body)
            content = b"" if status == 204 else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self.do_POST()

        def do_DELETE(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Say nothing."""

    with serving(Handler) as standin.port:
        yield standin
