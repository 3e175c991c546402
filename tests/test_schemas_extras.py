"""Libraries of extras: what is there is loaded, and what is absent is named with what brings it."""

from __future__ import annotations

import sys

import pytest

from schemas import aws_kms, vault
from schemas.errors import UsageError
from schemas.extras import optional_library


def test_library_that_is_there_is_loaded_where_it_is_asked_for() -> None:
    """Dots lead to modules inside of it."""
    assert optional_library("json.decoder", extra="none").JSONDecoder.__name__ == "JSONDecoder"


@pytest.mark.parametrize("name", ["absent_library", "absent_library.part.of_it"])
def test_absent_library_names_itself_and_its_extra(name: str) -> None:
    """The user is told what to install, in one line and with exit code 2."""
    with pytest.raises(UsageError) as caught:
        optional_library(name, extra="some")

    assert str(caught.value) == "absent_library: not installed; install it with pip install 'exactppl[some]'"
    assert caught.value.exit_code == 2
    assert caught.value.__suppress_context__


def test_key_services_name_their_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus whose keys are in a service tells whoever lacks its library, before anything is asked."""
    for library in ("boto3", "boto3.session", "botocore", "botocore.exceptions", "hvac"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setenv("VAULT_TOKEN", "hvs.of-a-node")
    kms = aws_kms.Kms(aws_kms.AwsSettings(region="eu-central-1"))
    transit = vault.Vault(vault.VaultSettings(address="https://vault"))

    with pytest.raises(UsageError, match=r"botocore: not installed; .*exactppl\[aws\]"):
        kms.call("list_keys", where="test")
    with pytest.raises(UsageError, match=r"hvac: not installed; .*exactppl\[vault\]"):
        transit.call("GET", "sys/health", where="test")
