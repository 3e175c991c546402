"""A corpus whose keys stay in a service: the same build, with keyrings that hold no KEK."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from schemas.access import KeySource
from schemas.errors import AccessDeniedError, UsageError
from schemas.folders import open_build
from schemas.keyrings import keyring_path, read_keyring
from schemas.keys_vault_admin import policy_name
from schemas.rotation import rotate
from schemas.services import read_service
from schemas.shard_files import read_shard
from schemas.verification import verify_build
from sharding.build import build_corpus
from sharding.corpus_keys import ready_keys
from sharding.identity import load_key
from tests.builds import request, some_rows, write_rows
from tests.secured import DEPARTMENTS, POLICY
from tests.vault_standin import ROOT_TOKEN, vault_standin

pytest.importorskip("hvac", reason="hvac is not installed")


def test_a_build_with_keys_in_vault_is_read_by_its_tokens_alone(tmp_path: Path, scheduler: str) -> None:
    """Over a stand-in for Vault: workers, owner and nodes reach it, each with a token of its own; keys rotate there."""
    corpus, token = tmp_path / "corpus", tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(ROOT_TOKEN)
    (tmp_path / "policy.toml").write_text(POLICY)
    source = write_rows(tmp_path / "rows.jsonl", some_rows(30, departments=DEPARTMENTS))
    keys = KeySource(corpus / "secret" / "keyring", "owner")
    asked = replace(request([source], corpus, scheduler), keys=keys)
    with vault_standin() as service:
        (tmp_path / "service.toml").write_text(f'[vault]\naddress = "{service.url}"\ntoken_file = "{token}"\n')
        found = read_service(tmp_path / "service.toml")

        ready_keys(corpus, keys, tmp_path / "policy.toml", load_key(tmp_path / "test.key"), service=found)
        build, _ = build_corpus(asked)

        codes = {build.department_name(code): code for code in build.codes}
        assert verify_build(build, deep=True)["records"] == 30
        assert all(not read_keyring(keyring_path(keys.folder, name)).keks for name in ("owner", "north", "auditor"))
        assert rotate(corpus, keys, build.codes, retire=True) == len(build.manifest.shards) + len(codes)
        assert verify_build(open_build(corpus, keys.open()), deep=True)["records"] == 30

        service.tokens["hvs.north"] = [policy_name("north", "exactppl")]
        token.write_text("hvs.north")
        seen = open_build(corpus, KeySource(keys.folder, "north").open())
        for number, name in enumerate(DEPARTMENTS):
            shard = next(shard for shard in seen.manifest.shards if shard.department == codes[name])
            if number < 3:
                assert read_shard(seen, shard).num_rows == 5
                continue
            with pytest.raises(AccessDeniedError):
                read_shard(seen, shard)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write one table"),
        ('[aws]\nregion = "x"\n[vault]\naddress = "https://v"\n', "write one table"),
        ("[aws]\nregion = 7\n", "aws.region"),
        ("[kms]\n", "kms"),
        ("[aws", "not valid TOML"),
    ],
)
def test_a_service_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With every mistake, in one line."""
    path = tmp_path / "service.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=said) as refused:
        read_service(path)

    assert "\n" not in str(refused.value)
