"""Who may do what: principals and their grants. What is not granted is denied.

A policy is written as TOML by people, who know departments by name::

    [principals.cardiology-node]
    score = ["Cardiology"]        # names, codes (d-…), or "*" for all, also those to come
    [principals.auditor]
    aggregate = true              # reads losses of all departments, and no note
    [principals.owner]
    build = true                  # writes shards of all departments
    administer = true             # makes, grants, revokes and rotates keys; holds all of them

and kept as a sealed document with codes only, whose digest goes into manifests and fingerprints.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from schemas.canonical import canonical_json
from schemas.documents import Document, Value
from schemas.errors import AccessDeniedError, UsageError
from schemas.keyrings import PRINCIPAL
from schemas.keys import SCRATCH, kek_of
from schemas.patterns import CODE
from schemas.seals import label
from schemas.toml import read_toml

EVERY = "*"
FLAGS = ("aggregate", "build", "administer")


class Grant(Value):
    """What one principal may do.

    Attributes:
        score: Codes of departments whose notes it may read, or ``*`` alone.
        aggregate: Whether it may read the losses of all departments.
        build: Whether it may write builds, and thus read all inputs.
        administer: Whether it may administer keys, and thus use all of them.
        grantee: The key service's name of it, such as an ARN; a keyring needs none.
    """

    score: tuple[str, ...] = ()
    aggregate: bool = False
    build: bool = False
    administer: bool = False
    grantee: str | None = Field(default=None, max_length=2048)

    @field_validator("score")
    @classmethod
    def _codes(cls, score: tuple[str, ...]) -> tuple[str, ...]:
        if EVERY in score:
            return (EVERY,)
        if not all(re.fullmatch(CODE, code) for code in score):
            raise ValueError("no codes of departments")
        return tuple(sorted(set(score)))

    def may_score(self, code: str) -> bool:
        """Whether notes of this department may be read."""
        return self.administer or self.build or EVERY in self.score or code in self.score

    def may_see_results(self, code: str) -> bool:
        """Whether losses of this department may be read."""
        return self.aggregate or self.may_score(code)


class Policy(Document):
    """All grants, by principal."""

    kind = "exactppl.policy"

    principals: dict[str, Grant]

    @field_validator("principals")
    @classmethod
    def _names(cls, principals: dict[str, Grant]) -> dict[str, Grant]:
        if not all(re.fullmatch(PRINCIPAL, name) for name in principals):
            raise ValueError("no names of principals")
        return principals

    @property
    def digest(self) -> str:
        """Hex SHA-256 of what is granted; equal policies have equal digests, however they were written."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def grant_of(self, principal: str) -> Grant:
        """What a principal may do.

        Raises:
            AccessDeniedError: the policy does not know it.
        """
        if principal not in self.principals:
            raise AccessDeniedError(f"principal {principal}: not in the policy; ask whoever administers it")
        return self.principals[principal]

    def keks_of(self, principal: str, codes: Iterable[str]) -> list[str]:
        """The KEKs that a principal may use, among those of these departments."""
        grant = self.grant_of(principal)
        codes = sorted(codes)
        text = [kek_of(code, "text") for code in codes if grant.may_score(code)]
        results = [kek_of(code, "results") for code in codes if grant.may_see_results(code)]
        return [*text, *results, *([SCRATCH] if grant.build or grant.administer else [])]


def owners_policy(principal: str) -> Policy:
    """The policy of a corpus for which none was written: one principal may do everything."""
    return Policy(principals={principal: Grant(score=(EVERY,), aggregate=True, build=True, administer=True)})


def read_policy(path: Path, code_of: Callable[[str], str]) -> Policy:
    """A policy as it was written by people.

    Args:
        path: TOML file.
        code_of: The code of a department by its name.

    Raises:
        UsageError: the file cannot be read, or lists every mistake by its place; no department is named.
    """
    content = read_toml(path, "policy")
    mistakes = [f"unknown table {name!r}" for name in sorted(content.keys() - {"principals"})]
    principals = content.get("principals")
    if not isinstance(principals, dict) or not principals:
        mistakes.append("no [principals.NAME] tables")
        principals = {}
    grants = {name: _grant(name, table, code_of, mistakes) for name, table in principals.items()}
    if principals and not any(grant.administer for grant in grants.values()):
        mistakes.append("nobody may administer")
    if mistakes:
        raise UsageError(f"{label(path)}: {len(mistakes)} mistakes: {'; '.join(mistakes)}")
    return Policy(principals=grants)


def _grant(name: str, table: Any, code_of: Callable[[str], str], mistakes: list[str]) -> Grant:
    """One principal's grant; what is wrong with it is added to the mistakes."""
    where = f"principals.{name}" if re.fullmatch(PRINCIPAL, name) else f"principal of {len(name)} characters"
    found: list[str] = [] if re.fullmatch(PRINCIPAL, name) else ["1 to 64 letters, digits, - or _ make a name"]
    if not isinstance(table, dict):
        mistakes.append(f"{where}: no table")
        return Grant()
    found += [f"unknown setting {key!r}" for key in sorted(table.keys() - {"score", "grantee", *FLAGS})]
    found += [f"{key} is neither true nor false" for key in FLAGS if not isinstance(table.get(key, False), bool)]
    score, grantee = table.get("score", []), table.get("grantee")
    if not isinstance(score, list) or not all(isinstance(item, str) and item for item in score):
        found.append("score is no list of departments")
        score = []
    if EVERY in score and len(score) > 1:
        found.append(f'score has "{EVERY}" and departments; write one of both')
    if grantee is not None and not isinstance(grantee, str):
        found.append("grantee is no text")
    mistakes.extend(f"{where}: {mistake}" for mistake in found)
    if found:
        return Grant(administer=table.get("administer") is True)
    codes = [item if item == EVERY or re.fullmatch(CODE, item) else code_of(item) for item in score]
    return Grant(score=tuple(codes), grantee=grantee, **{key: table.get(key, False) for key in FLAGS})
