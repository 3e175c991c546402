"""Keys in Vault: what every answer of the service means, which calls are made, and that nothing of them leaks."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, TemporaryError, UsageError
from schemas.keys import SCRATCH, WrappedKey, kek_of
from schemas.keys_vault import VaultKeys, decrypt_path, key_name
from schemas.keys_vault_admin import FORM, VaultAdministration, policy_name
from schemas.vault import Vault, VaultSettings
from tests.answers import Answers, answering
from tests.vault_standin import ROOT_TOKEN, VaultStandIn, vault_standin

pytest.importorskip("hvac")

TEXT, RESULTS = (kek_of("d-00000000000a", purpose) for purpose in ("text", "results"))
SHARD = {"build": "b-1", "shard": "s-1"}
TOKEN = "hvs.of-a-node"
WRAPPED = WrappedKey(kek_id=TEXT, version=1, ciphertext="vault:v1:d3JhcHBlZA==")
ANSWER_32 = json.dumps({"data": {"plaintext": base64.b64encode(bytes(32)).decode()}}).encode()


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up tokens, and no configuration of whoever runs the tests."""
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    monkeypatch.setenv("ROOT", ROOT_TOKEN)
    monkeypatch.delenv("VAULT_ADDR", raising=False)


@pytest.fixture(scope="module")
def standin() -> Iterator[VaultStandIn]:
    """One stand-in for all tests here; each has its own prefix."""
    with vault_standin() as standin:
        yield standin


@pytest.fixture
def root(standin: VaultStandIn, request: pytest.FixtureRequest) -> Vault:
    """A connection that may do everything, with a prefix of its own."""
    prefix = re.sub("[^a-z0-9]", "-", request.node.name.lower())[-60:].strip("-")
    return Vault(VaultSettings(address=standin.url, prefix=prefix, token_variable="ROOT"))


@pytest.fixture(scope="module")
def answering_server() -> Iterator[Answers]:
    """A server that answers as it is told."""
    with answering() as answers:
        yield answers


@pytest.fixture
def server(answering_server: Answers) -> Answers:
    """That server, with nothing asked yet."""
    answering_server.asked.clear()
    answering_server.headers.clear()
    return answering_server


def asking(url: str, **settings: Any) -> VaultKeys:
    """A provider that asks a server once."""
    return VaultKeys(Vault(VaultSettings(address=url, num_attempts=1, **settings)))


def refusal(message: str) -> bytes:
    """A failure as the service writes it."""
    return json.dumps({"errors": [message]}).encode()


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "cipher: message authentication failed", IntegrityError),
        (400, "invalid ciphertext: no prefix", IntegrityError),
        (400, "ciphertext or signature version is disallowed by policy (too old)", AccessDeniedError),
        (400, "encryption key not found", AccessDeniedError),
        (401, "unauthorized", AccessDeniedError),
        (403, "permission denied", AccessDeniedError),
        (404, "no handler for route", UsageError),
        (405, "unsupported operation", UsageError),
        (412, "required index state not present", TemporaryError),
        (429, "request path kept quota", TemporaryError),
        (500, "internal error", TemporaryError),
        (500, "1 error occurred:\n\t* cipher: message authentication failed", IntegrityError),
        (502, "bad gateway", TemporaryError),
        (503, "Vault is sealed", TemporaryError),
    ],
)
def test_every_refusal_of_the_service_has_one_meaning(
    server: Answers, status: int, message: str, kind: type[PipelineError]
) -> None:
    """Status and a few phrases decide; the service's message, which may name paths, goes no further."""
    server.told = [(status, refusal(f"{message} secret-path"))]

    with pytest.raises(kind, match=f"^key {TEXT}: ") as caught:
        asking(server.url).decrypt(WRAPPED, SHARD)

    assert type(caught.value) is kind
    assert "secret-path" not in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_bad_request_that_unwraps_nothing_is_no_damage(server: Answers) -> None:
    """No file is to be restored because a key could not be made."""
    server.told = [(400, refusal("unknown key type"))]

    with pytest.raises(UsageError, match="cannot do this"):
        asking(server.url).generate_data_key(TEXT, SHARD)


@pytest.mark.parametrize(
    ("body", "kind", "match"),
    [
        (b"<html>", UsageError, r"cannot do this \(status 200\)"),
        (b"{}", UsageError, "answers without plaintext"),
        (b'{"data": {"plaintext": 1}}', UsageError, "answers without plaintext"),
        (b'{"data": {"plaintext": "?"}}', UsageError, "no base64"),
        (b'{"data": {"plaintext": "AAAA"}}', IntegrityError, "has 3 bytes, not 32"),
    ],
)
def test_answer_of_another_form_is_refused(server: Answers, body: bytes, kind: type[PipelineError], match: str) -> None:
    """What the service unwrapped must be a data key of ours."""
    server.told = [(200, body)]

    with pytest.raises(kind, match=match):
        asking(server.url).decrypt(WRAPPED, SHARD)


def test_decrypt_tells_the_service_ciphertext_and_context(server: Answers) -> None:
    """The context is base64 of canonical JSON, the same for equal contexts in any order."""
    server.told = [(200, ANSWER_32)]

    for context in (SHARD, dict(reversed(SHARD.items()))):
        asking(server.url).decrypt(WRAPPED, context)

    encoded = base64.b64encode(b'{\n  "build": "b-1",\n  "shard": "s-1"\n}\n').decode()
    assert [json.loads(body) for body in server.asked] == [{"ciphertext": WRAPPED.ciphertext, "context": encoded}] * 2


@pytest.mark.parametrize("ciphertext", ["vault:v2:d3JhcHBlZA==", "vault:v1:", "vault:v01:d3JhcHBlZA==", "d3JhcHBlZA=="])
def test_wrapping_of_another_version_than_stands_beside_it_is_refused(server: Answers, ciphertext: str) -> None:
    """The service is not asked: the file was edited."""
    with pytest.raises(IntegrityError, match="not one of Vault of version 1"):
        asking(server.url).decrypt(WRAPPED.model_copy(update={"ciphertext": ciphertext}), SHARD)

    assert server.asked == []


def test_call_that_met_a_passing_failure_is_made_again(server: Answers) -> None:
    """A short outage does not end a build."""
    server.told = [(503, refusal("Vault is sealed")), (200, ANSWER_32)]

    opened = VaultKeys(Vault(VaultSettings(address=server.url, num_attempts=2))).decrypt(WRAPPED, SHARD)

    assert opened == bytes(32)
    assert len(server.asked) == 2


def test_redirect_is_not_followed(server: Answers) -> None:
    """Token and key go to the address of the settings alone."""
    with answering() as other:
        other.told = [(200, ANSWER_32)]
        server.told, server.headers = [(307, b"")], {"Location": other.url}

        with pytest.raises(UsageError, match="status 307"):
            asking(server.url).decrypt(WRAPPED, SHARD)

        assert other.asked == []


def test_proxy_of_the_environment_gets_nothing_that_is_in_the_clear(
    server: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain http is for this machine; a proxy would carry it elsewhere."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.told = [(200, ANSWER_32)]

    with answering() as proxy:
        proxy.told = [(200, ANSWER_32)]
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        asking(server.url).decrypt(WRAPPED, SHARD)

        assert (len(server.asked), len(proxy.asked)) == (1, 0)


def test_service_out_of_reach_is_a_passing_failure() -> None:
    """The same command can succeed later."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

    with pytest.raises(TemporaryError, match="cannot be reached"):
        asking(url).decrypt(WRAPPED, SHARD)


def test_server_that_cannot_be_trusted_is_a_matter_of_configuration(server: Answers) -> None:
    """Trying again would not help; nothing is told to a server without a certificate."""
    with pytest.raises(UsageError, match=r"no trusted connection to Vault \(SSLError\); look at its address"):
        asking(server.url.replace("http:", "https:")).decrypt(WRAPPED, SHARD)

    assert server.asked == []


def test_no_token_is_access_denied(server: Answers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A node that was given none is told so before anything is asked, and no token of its user is looked for."""
    monkeypatch.delenv("VAULT_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".vault-token").write_text(TOKEN)

    with pytest.raises(AccessDeniedError, match="no token for Vault; set VAULT_TOKEN"):
        asking(server.url).decrypt(WRAPPED, SHARD)
    with pytest.raises(AccessDeniedError, match="no such token; give this principal its own"):
        asking(server.url, token_file=tmp_path / "absent").decrypt(WRAPPED, SHARD)

    assert server.asked == []


@pytest.mark.parametrize(
    ("content", "mode", "match"),
    [("hvs.a\nhvs.b", 0o600, "odd characters"), ("hvs.ä", 0o600, "odd characters"), ("hvs.a", 0o640, "mode is 0640")],
)
def test_unsound_token_file_is_refused(server: Answers, tmp_path: Path, content: str, mode: int, match: str) -> None:
    """A token that others may read is no secret; no message holds it."""
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)

    with pytest.raises(UsageError, match=match) as caught:
        asking(server.url, token_file=path).decrypt(WRAPPED, SHARD)

    assert "hvs" not in str(caught.value)


def test_token_that_was_renewed_is_used_at_once(root: Vault, standin: VaultStandIn, tmp_path: Path) -> None:
    """A long run outlives its first token."""
    VaultAdministration(root).make_kek(TEXT)
    made = VaultKeys(root).generate_data_key(TEXT, SHARD)
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("hvs.expired")
    keys = VaultKeys(Vault(root.settings.model_copy(update={"token_file": path, "num_attempts": 1})))
    with pytest.raises(AccessDeniedError, match="Vault refuses"):
        keys.decrypt(made.wrapped, SHARD)

    path.write_text(f"{ROOT_TOKEN}\n")

    assert keys.decrypt(made.wrapped, SHARD) == made.plaintext


def test_policies_are_exactly_those_that_are_meant(root: Vault, standin: VaultStandIn) -> None:
    """A reader may decrypt, a builder also make and rewrap; each change replaces all, and no grants are no policy."""
    administration, prefix = VaultAdministration(root, frozenset({"builder"})), root.settings.prefix
    for kek_id in (TEXT, RESULTS, SCRATCH):
        administration.make_kek(kek_id)
    text, results = (key_name(root.settings, kek_id) for kek_id in (TEXT, RESULTS))

    def granted(principal: str) -> dict[str, set[str]]:
        return standin.policies[policy_name(principal, prefix)][1]

    administration.set_grants("builder", None, [TEXT])
    administration.set_grants("reader", None, [TEXT, RESULTS, TEXT])
    first = granted("reader")
    administration.set_grants("reader", "its entity", [RESULTS])
    second = granted("reader")
    administration.set_grants("reader", None, [])
    administration.set_grants("reader", None, [])

    assert granted("builder") == {
        f"transit/{path}/{text}": {"update"} for path in ("decrypt", "datakey/plaintext", "rewrap")
    }
    assert first == {f"transit/decrypt/{name}": {"update"} for name in (text, results)}
    assert second == {f"transit/decrypt/{results}": {"update"}}
    assert policy_name("reader", prefix) not in standin.policies


def test_reader_opens_and_makes_nothing_and_a_builder_does_both(
    root: Vault, standin: VaultStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service enforces it, by the token alone."""
    administration = VaultAdministration(root, frozenset({"builder"}))
    administration.make_kek(TEXT)
    keys = {}
    for principal in ("reader", "builder"):
        administration.set_grants(principal, None, [TEXT])
        monkeypatch.setenv(principal, f"hvs.{principal}")
        standin.tokens[f"hvs.{principal}"] = [policy_name(principal, root.settings.prefix)]
        keys[principal] = VaultKeys(Vault(root.settings.model_copy(update={"token_variable": principal})))

    made = keys["builder"].generate_data_key(TEXT, SHARD)
    again = keys["builder"].rewrap(made.wrapped, SHARD)

    assert [keys[principal].decrypt(again, SHARD) for principal in keys] == [made.plaintext] * 2
    with pytest.raises(AccessDeniedError, match="Vault refuses"):
        keys["reader"].generate_data_key(TEXT, SHARD)
    with pytest.raises(AccessDeniedError, match="Vault refuses"):
        keys["reader"].rewrap(made.wrapped, SHARD)


def test_corpora_of_one_engine_share_neither_keys_nor_policies() -> None:
    """Names that would run together do not: ``a`` with ``b-c`` is not ``a-b`` with ``c``."""
    prefixes = ["a", "a-b", "a-d-00000000000a", "a-d-00000000000a-text"]
    settings = [VaultSettings(address="https://vault", prefix=prefix) for prefix in prefixes]

    policies = [policy_name(principal, prefix) for prefix in prefixes for principal in ("c", "b-c", "text", "b")]
    keys = [key_name(item, kek_id) for item in settings for kek_id in (TEXT, RESULTS, SCRATCH)]

    assert len(set(policies)) == 16
    assert len(set(keys)) == 12


def test_grants_that_cannot_be_meant_are_refused(root: Vault, standin: VaultStandIn) -> None:
    """Nothing is granted by a mistake; Vault would give ``Reader`` the policy of ``reader``."""
    administration = VaultAdministration(root)
    administration.make_kek(TEXT)

    with pytest.raises(UsageError, match="no capitals in names of policies"):
        administration.set_grants("Reader", None, [TEXT])
    with pytest.raises(UsageError, match=f"1 keys are not there, such as key {SCRATCH}"):
        administration.set_grants("reader", None, [TEXT, SCRATCH])
    with pytest.raises(UsageError, match="not in Vault; make it first"):
        administration.rotate_keks([SCRATCH])
    with pytest.raises(UsageError, match="no id of a KEK"):
        administration.make_kek("Cardiology")
    assert policy_name("reader", root.settings.prefix) not in standin.policies


@pytest.mark.parametrize(
    ("name", "value"),
    [("derived", False), ("convergent_encryption", True), ("exportable", True), ("allow_plaintext_backup", True)],
)
def test_key_of_another_form_is_not_used(root: Vault, standin: VaultStandIn, name: str, value: bool) -> None:
    """The service ignores contexts under a key that is not derived, and hands out one that is exportable."""
    administration = VaultAdministration(root)
    path = f"transit/keys/{key_name(root.settings, TEXT)}"
    root.call("POST", path, where="test", **{**FORM, name: value})

    with pytest.raises(UsageError, match=rf"not as it must be \({name}\)"):
        administration.make_kek(TEXT)
    for change in (administration.rotate_keks, administration.retire_keks):
        with pytest.raises(UsageError, match=rf"not as it must be \({name}\)"):
            change([TEXT])
    with pytest.raises(UsageError, match=rf"not as it must be \({name}\)"):
        administration.set_grants("reader", None, [TEXT])


def test_kek_is_made_once_in_the_form_that_binds_contexts(root: Vault, standin: VaultStandIn) -> None:
    """A second build finds the first one's key."""
    administration = VaultAdministration(root)

    made = [administration.make_kek(TEXT) for _ in range(2)]

    key = standin.keys[key_name(root.settings, TEXT)]
    assert made == [True, False]
    assert (key.form, len(key.versions)) == (FORM, 1)


@pytest.mark.parametrize("field", [{"mount": "transit/*"}, {"mount": "+"}, {"prefix": "A"}, {"prefix": "a.b"}])
def test_settings_that_would_widen_a_policy_are_refused(field: dict[str, Any]) -> None:
    """``*`` and ``+`` are wild cards of policies, and the dot separates prefix and principal."""
    with pytest.raises(ValidationError):
        VaultSettings(address="https://vault", **field)


def test_debugging_output_shows_no_key_and_no_token(root: Vault, caplog: pytest.LogCaptureFixture) -> None:
    """Libraries log requests at level DEBUG; which ones they may, what is in them not."""
    VaultAdministration(root).make_kek(TEXT)

    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="urllib3"):
        made = VaultKeys(root).generate_data_key(TEXT, SHARD)
        opened = VaultKeys(root).decrypt(made.wrapped, SHARD)

    assert decrypt_path(root.settings, TEXT) in caplog.text
    assert opened == made.plaintext
    for secret in (base64.b64encode(opened).decode(), repr(opened), ROOT_TOKEN):
        assert secret not in caplog.text
        assert secret not in repr(root)


def test_connection_that_was_used_travels_without_its_client(root: Vault) -> None:
    """Another process asks with a token of its own."""
    VaultAdministration(root).make_kek(TEXT)
    made = VaultKeys(root).generate_data_key(TEXT, SHARD)

    content = pickle.dumps(root)

    assert ROOT_TOKEN.encode() not in content
    assert VaultKeys(pickle.loads(content)).decrypt(made.wrapped, SHARD) == made.plaintext
