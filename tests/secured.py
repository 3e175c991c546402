"""Encrypted corpora for tests: six departments, four principals, and what a node with one keyring has of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.folders import Build, open_build
from sharding.build import build_corpus
from tests.builds import request, some_rows, write_rows

DEPARTMENTS = tuple(f"canary ward {number}" for number in range(6))
GRANTS = {"north": (0, 1, 2), "south": (3, 4), "east": (1, 5), "west": ()}
POLICY = "".join(
    f"[principals.{name}]\nscore = {[DEPARTMENTS[number] for number in granted]}\n" for name, granted in GRANTS.items()
)
POLICY += "[principals.auditor]\naggregate = true\n[principals.owner]\nbuild = true\nadminister = true\n"


@dataclass(frozen=True)
class Secured:
    """A corpus with an encrypted build."""

    corpus: Path
    code_of: dict[str, str]

    @property
    def keyrings(self) -> Path:
        """Folder of all keyrings."""
        return self.corpus / "secret" / "keyring"

    def access(self, principal: str = "owner", *, folder: Path | None = None) -> Access:
        """A principal's opened keyring."""
        return KeySource(folder or self.keyrings, principal).open()

    def opened(self, principal: str = "owner") -> Build:
        """The build with a principal's keys."""
        return open_build(self.corpus, self.access(principal))

    def node_of(self, principal: str, folder: Path) -> tuple[Path, Access]:
        """All files of the build, copied to a node that has one keyring and no secret besides."""
        shutil.copytree(self.corpus, folder / "corpus", ignore=shutil.ignore_patterns("secret"))
        keyring = folder / "keyring"
        keyring.mkdir(mode=0o700)
        shutil.copy2(self.keyrings / f"{principal}.json", keyring)
        return folder / "corpus", self.access(principal, folder=keyring)


def make_secured(folder: Path, scheduler: str, *, num_rows: int = 60) -> Secured:
    """Build a corpus by the policy above."""
    source = write_rows(folder / "rows.jsonl", some_rows(num_rows, departments=DEPARTMENTS))
    (folder / "policy.toml").write_text(POLICY)
    corpus = folder / "corpus"
    asked = request([source], corpus, scheduler)
    keys = KeySource(corpus / "secret" / "keyring", "owner")
    build, _ = build_corpus(replace(asked, keys=keys, policy=folder / "policy.toml"))
    names = {code: build.department_name(code) for code in build.codes}
    return Secured(corpus, {str(name): code for code, name in names.items()})
