"""What a build depends on besides its inputs. Whatever cannot change the result (workers, scratch) is not here."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from schemas.settings import Settings
from schemas.tables import FEATURE_PREFIX
from sharding.departments import UNLISTED_DEPARTMENT, OnUnknown, num_clashes
from sharding.derived import FeatureColumn
from sharding.sources.adapter import CONFLICTING, DEPARTMENT, ENCOUNTER_FAULTS, PATIENT, TIME
from sharding.sources.adapters import ADAPTERS, AUTO, SOURCES, TABLE
from sharding.sources.encodings import charset, to_utf8

LENGTH_BAND = "length_band"
# Case features that are not of a column: the access border owns one, the other is made from the text itself.
OWN_FEATURES = {DEPARTMENT, LENGTH_BAND}
# What is unknown is counted by feature, and under these names for what is no feature; they end in no feature's count,
# since a limit (``--on-unknown fail``) rests on one of them, and every manifest shows them.
COUNTED_NAMES = {DEPARTMENT, PATIENT, TIME, UNLISTED_DEPARTMENT, *ENCOUNTER_FAULTS}
# Their values never leave the shards in the clear, so their columns can play no second role.
CONFIDENTIAL_ROLES = ("id", "text", "patient", "encounter")
MIN_BLOCK_TOKENS = 16_384
MAX_BLOCK_TOKENS = 1_048_576
# 64 ranks with 48 blocks each: design.md section 5 asks for at least 48 blocks a rank.
AUTO_NUM_BLOCKS = 3_072

_FEATURE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_REJECT_LIMIT = re.compile(r"[0-9]{1,15}|(100(\.0{1,9})?|[0-9]{1,2}(\.[0-9]{1,9})?)%")
# Bounds far beyond any corpus, within which sums of tokens and bytes stay exact in int64 and in FP64.
MAX_COUNT = 10**15


# What every encoding of text files can hold and give back piece by piece; punycode, idna and the like cannot.
ENCODING_SAMPLE = 'id,note\r\n1,"a \\u0041-b c."\n'


class Columns(Settings):
    """Which source column plays which role; a role without a column is null for every record."""

    text: str | None = None
    id: str | None = None
    department: str | None = None
    patient: str | None = None
    encounter: str | None = None
    time: str | None = None
    features: dict[str, FeatureColumn] = Field(default_factory=dict)

    @field_validator("features")
    @classmethod
    def _sound_names(cls, features: dict[str, FeatureColumn]) -> dict[str, FeatureColumn]:
        wrong = sorted(name for name in features if not _FEATURE_NAME.fullmatch(name))
        if wrong:
            raise ValueError(f"names are lower-case letters, digits and _, at most 40; {len(wrong)} are not")
        if taken := sorted(filter(_is_taken, features)):
            raise ValueError(f"{' and '.join(taken)} cannot name a feature; take another name")
        return features

    @model_validator(mode="after")
    def _confidential_alone(self) -> Columns:
        problems = []
        for role in CONFIDENTIAL_ROLES:
            column = getattr(self, role)
            others = [flag(other) for other, taken in self.by_role.items() if taken == column and other != role]
            if column is not None and others:
                problems.append(f"column {column!r} is given for {', '.join([flag(role), *others])}")
        if problems:
            rule = "a column of ids or text has one role only; name other columns"
            raise ValueError(f"{'; '.join(dict.fromkeys(problems))}; {rule}")
        return self

    @property
    def by_role(self) -> dict[str, str]:
        """Role to source column, for the roles that have one, in a fixed order."""
        single = {role: getattr(self, role) for role in ("id", "text", "department", "patient", "encounter", "time")}
        many = {FEATURE_PREFIX + name: self.features[name].column for name in sorted(self.features)}
        return {role: column for role, column in {**single, **many}.items() if column is not None}

    @property
    def feature_names(self) -> list[str]:
        """Names of all case features of the build, sorted."""
        return sorted([*self.features, LENGTH_BAND])


def mapping_problem(columns: Columns, source: str) -> str | None:
    """Why these columns cannot be mapped for a source: a family knows its own, a table needs the one of the note."""
    if source == TABLE and columns.text is None:
        return "columns.text (--text) is not set; name the column of the note"
    if source not in ADAPTERS or not columns.by_role:
        return None
    given = ", ".join(flag(role) for role in columns.by_role)
    features = ", ".join(ADAPTERS[source].features)
    return f"{source} knows its own columns and makes the features {features}; leave out {given}"


def flag(role: str) -> str:
    """The flag that maps a role."""
    return f"--feature {role.removeprefix(FEATURE_PREFIX)}=…" if role.startswith(FEATURE_PREFIX) else f"--{role}"


class ShardingSettings(Settings):
    """Settings of one build; ``[sharding]`` in the TOML file.

    Attributes:
        columns: Roles of the source columns; none for a family of files, which knows its own.
        source: ``table``, a family of files, or ``auto``: a table if the column of the note is named, else the family
            that the inputs are recognised as.
        format: ``auto`` goes by the file's suffix.
        encoding: Of text files; any encoding of text that Python knows.
        seed: Of the placement hash.
        target_tokens: Estimated tokens per shard.
        block_tokens: Estimated tokens per block; ``auto`` spreads the build over 3,072 blocks within limits.
        bytes_per_token: For the estimate of tokens from UTF-8 bytes.
        on_conflict: What to do with one id that has two texts.
        max_record_bytes: A record with a longer text is rejected as ``too_long``.
        max_rejects: A count, or a share of the records read from ``0%`` to ``100%``; of rows of side files likewise.
        phi_scan: Count what has the form of an identifier, by kind and department.
        max_phi: As ``max_rejects``, of records with such a form among those that are scanned; null for no limit.
        limit: Keep only so many records, the first in placement order.
        departments: Code by spelling; ``[departments]`` in the TOML file. Names of departments are confidential.
        on_unknown: A department in no entry is kept as it is, becomes UNKNOWN, or fails the build.
        group: What stays together in one shard, in the order of time: a department's records of one patient or
            encounter, or each record on its own.
    """

    columns: Columns
    source: str = AUTO
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"] = "auto"
    encoding: str = "utf-8"
    seed: int = Field(default=0, ge=0, lt=2**64)
    target_tokens: int = Field(default=4_000_000, ge=1, le=MAX_COUNT)
    block_tokens: int | Literal["auto"] = "auto"
    bytes_per_token: float = Field(default=4.0, ge=0.01, le=1_000)
    on_conflict: Literal["fail", "keep"] = "fail"
    max_record_bytes: int = Field(default=16 << 20, ge=1, le=MAX_COUNT)
    max_rejects: str = "1%"
    phi_scan: bool = False
    max_phi: str | None = None
    limit: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    departments: dict[str, str] = Field(default_factory=dict, repr=False)
    on_unknown: OnUnknown = "keep"
    group: Literal["none", "patient", "encounter"] = "none"

    @model_validator(mode="before")
    @classmethod
    def _columns_by_name(cls, values: dict[str, Any]) -> dict[str, Any]:
        # So that a missing mapping is reported column by column.
        return {"columns": {}, **values}

    @field_validator("source")
    @classmethod
    def _known_source(cls, name: str, info: ValidationInfo) -> str:
        if name not in SOURCES:
            raise ValueError(f"one of {', '.join(SOURCES)}")
        if "columns" in info.data and (problem := mapping_problem(info.data["columns"], name)):
            raise ValueError(problem)
        return name

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        try:
            found = charset(name)
            readable = to_utf8(ENCODING_SAMPLE.encode(name), name).decode() == ENCODING_SAMPLE
        except (LookupError, ValueError):
            readable = False
        if not readable:
            raise ValueError("unknown text encoding; Python's names are known, such as utf-8, gb18030, cp1252")
        return "utf-8" if found == "utf-8-sig" else found

    @field_validator("block_tokens")
    @classmethod
    def _sound_block(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1 <= value <= MAX_COUNT:
            raise ValueError(f"from 1 to {MAX_COUNT}, or auto")
        return value

    @field_validator("max_rejects", mode="before")
    @classmethod
    def _sound_limit(cls, value: Any) -> str:
        if not _REJECT_LIMIT.fullmatch(str(value)):
            raise ValueError("a count such as 100, or a share such as 1%")
        return str(value)

    @field_validator("max_phi", mode="before")
    @classmethod
    def _sound_phi_limit(cls, value: Any) -> str | None:
        return None if value is None else cls._sound_limit(value)

    @field_validator("departments", mode="before")
    @classmethod
    def _sound_departments(cls, table: Any) -> Any:
        # Before pydantic looks at the entries, since it names them.
        if not isinstance(table, dict) or not all(isinstance(code, str) and code.strip() for code in table.values()):
            raise ValueError('a table of spellings and codes, such as "Cardiology" = "CARD"')
        if found := num_clashes(table):
            raise ValueError(f"{found} spellings are alike but for case, width and space, and have different codes")
        return table

    @model_validator(mode="after")
    def _together(self) -> ShardingSettings:
        problems = []
        if self.on_unknown != "keep" and not self.departments:
            problems.append(f"--on-unknown {self.on_unknown} needs spellings in [departments] of the TOML file")
        if self.group != "none" and self.is_table and getattr(self.columns, self.group) is None:
            problems.append(f"--group {self.group} needs its ids; name their column with --{self.group}")
        if self.max_phi is not None and not self.phi_scan:
            problems.append("--max-phi limits what --phi-scan counts; give --phi-scan too")
        if self.group == "none" and self.columns.time is not None:
            problems.append("--time orders the records of a group; give --group too, or leave it out")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def is_table(self) -> bool:
        """Whether every input is a table with mapped columns."""
        return self.source == TABLE or (self.source == AUTO and self.columns.text is not None)

    @property
    def feature_names(self) -> list[str]:
        """Names of all case features of the build, sorted; ``source`` must not be ``auto`` any more."""
        if self.source in ADAPTERS:
            return sorted([*ADAPTERS[self.source].features, LENGTH_BAND])
        return self.columns.feature_names

    @property
    def has_id(self) -> bool:
        """Whether records have ids of their own."""
        return self.source in ADAPTERS or self.columns.id is not None

    def block_tokens_for(self, total_tokens: int) -> int:
        """Estimated tokens per block of a build of this size."""
        if self.block_tokens == "auto":
            return min(max(total_tokens // AUTO_NUM_BLOCKS, MIN_BLOCK_TOKENS), MAX_BLOCK_TOKENS)
        return self.block_tokens

    def allowed_rejects(self, num_read: int) -> int:
        """How many rejected records are accepted among ``num_read``."""
        return allowed(self.max_rejects, num_read)


def allowed(limit: str, num_all: int) -> int:
    """How many of ``num_all`` a limit allows that is a count, or a share such as 1%."""
    if limit.endswith("%"):
        # Not as a float: 0.57 % of 10,000 would be 56.
        return int(num_all * Fraction(limit[:-1]) / 100)
    return int(limit)


def _is_taken(name: str) -> bool:
    return name in OWN_FEATURES | COUNTED_NAMES or name.startswith(CONFLICTING)
