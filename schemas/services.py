"""Which key service a corpus has, as its keyrings name it; without one, keyrings hold the KEKs themselves.

Written by people as TOML, one table::

    [aws]                        # schemas.aws_kms.AwsSettings
    region = "eu-central-1"

    [vault]                      # schemas.vault.VaultSettings
    address = "https://vault.example.org:8200"
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError, model_validator

from schemas.aws_kms import AwsSettings
from schemas.documents import Value
from schemas.errors import UsageError
from schemas.seals import label
from schemas.toml import read_toml
from schemas.vault import VaultSettings


class KeyService(Value):
    """Exactly one of the services."""

    aws: AwsSettings | None = None
    vault: VaultSettings | None = None

    @model_validator(mode="after")
    def _one(self) -> KeyService:
        if (self.aws is None) == (self.vault is None):
            raise ValueError("write one table, [aws] or [vault]")
        return self


def read_service(path: Path) -> KeyService:
    """A key service from a TOML file.

    Raises:
        UsageError: the file cannot be read, or lists every mistake by its place.
    """
    try:
        return KeyService.model_validate(read_toml(path, "TOML"))
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        said = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in found)
        raise UsageError(f"{label(path)}: {len(found)} mistakes: {said}") from None
