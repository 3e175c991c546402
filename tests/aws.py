"""AWS KMS for tests: moto in this process, made-up credentials, and no way to the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "*",
}
ABSENT = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KMS", "AWS_DEFAULT_REGION")
REGION = "eu-central-1"


@contextmanager
def made_up_account(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Credentials that belong to nobody, and no configuration of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        for name in ABSENT:
            patch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(name, str(folder / "absent"))
        yield patch


@contextmanager
def moto_kms(folder: Path) -> Iterator[None]:
    """Calls of boto3 are answered by moto, and never leave the process."""
    moto = pytest.importorskip("moto")
    with made_up_account(folder), moto.mock_aws():
        yield
