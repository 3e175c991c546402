"""What ``build`` and ``plan`` are told on the command line, and the request that it makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schemas.access_options import access_options, key_source
from schemas.console import NamedPath, output_options

if TYPE_CHECKING:
    from sharding.cluster import ClusterOptions
    from sharding.config import ShardingSettings
    from sharding.preparation import Request

_ADDRESS = re.compile(
    r"inproc://\S+|((tcp|tls|ws|wss|ucx)://)?([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})", re.ASCII
)
CommandT = TypeVar("CommandT", bound=Callable[..., Any])


EXISTING_FILE = NamedPath(exists=True, dir_okay=False, path_type=Path)
FOLDER = NamedPath(file_okay=False, path_type=Path)
ANY_PATH = NamedPath(path_type=Path)
NEW_FILE = NamedPath(dir_okay=False, path_type=Path)
MAPPING_FLAGS = ("id", "text", "department", "patient", "encounter", "time")
SETTING_FLAGS = (
    "source",
    "format",
    "encoding",
    "seed",
    "target_tokens",
    "block_tokens",
    "bytes_per_token",
    "on_conflict",
    "max_record_bytes",
    "max_rejects",
    "phi_scan",
    "max_phi",
    "limit",
    "on_unknown",
    "group",
)


class Address(click.ParamType[str]):
    """[PROTOCOL://]HOST:PORT."""

    name = "ADDRESS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As it is, if it can be the address of a Dask scheduler."""
        found = _ADDRESS.fullmatch(str(value))
        if not found or int(found["port"] or 1) not in range(1, 65_536):
            self.fail("write an address such as tcp://HOST:PORT; known are tcp, tls, ws, wss, ucx, inproc", param, ctx)
        return str(value)


_BUILD_OPTIONS = [
    click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
    click.option("--out", "corpus", required=True, type=FOLDER, help="Corpus folder: holds all builds and the key."),
    click.option("--config", type=EXISTING_FILE, help="TOML file with a [sharding] table."),
    click.option("--id", help="Column of the record's id; without one the whole row makes the id."),
    click.option("--text", help="Column of the note."),
    click.option("--department", help="Column of the department: the first partition and access border."),
    click.option("--patient", help="Column of the patient's id."),
    click.option("--encounter", help="Column of the encounter's id."),
    click.option("--time", help="Column of the record's ISO 8601 time; orders the records of a group."),
    click.option(
        "--feature",
        metavar="NAME=COLUMN",
        multiple=True,
        help="Case feature for strata, again for each; or NAME=year(COLUMN), age_band, sex, icd_chapter, ...",
    ),
    click.option("--source", help="table, fhir, mimic3, mimic4 or omop; auto recognises a family of files."),
    click.option("--format", help="auto (by suffix), csv, tsv, jsonl or parquet."),
    click.option("--encoding", help="Of text files: utf-8, utf-16, gb18030, cp1252, ..."),
    click.option("--seed", help="Of the placement."),
    click.option("--target-tokens", help="Estimated tokens per shard."),
    click.option("--block-tokens", help="Estimated tokens per block, or auto."),
    click.option("--bytes-per-token", help="For the estimate of tokens."),
    click.option("--on-conflict", help="One id with two texts: fail, or keep one of them."),
    click.option("--max-record-bytes", help="A longer text is rejected and counted."),
    click.option("--max-rejects", help="A count or a share such as 1%; more is an error."),
    click.option("--phi-scan", is_flag=True, default=None, help="Count forms of identifiers (slow; needs [phi])."),
    click.option("--max-phi", help="Records with one, a count or a share such as 1%; more is an error."),
    click.option("--limit", help="Keep only the first N records in placement order."),
    click.option("--on-unknown", help="A department in no entry of [departments]: keep, unknown, or fail."),
    click.option("--group", help="Keep together in one shard: none, patient, or encounter."),
    click.option("--policy", type=EXISTING_FILE, help="TOML file of who may do what; replaces the corpus' policy."),
    click.option("--record-key", type=EXISTING_FILE, help="Another key file (64 hex digits); workers must see it too."),
    click.option("--workers", type=click.IntRange(1, 1_024), help="Local worker processes; all cores by default."),
    click.option("--scheduler", type=Address(), help="Running Dask scheduler; its workers must see all paths."),
    click.option("--scheduler-file", type=EXISTING_FILE, help="Its connection file; its workers must see all paths."),
    click.option("--tls-ca", type=EXISTING_FILE, help="For tls://: PEM file of the cluster's certificate authority."),
    click.option("--tls-cert", type=EXISTING_FILE, help="For tls://: PEM file of our certificate."),
    click.option("--tls-key", type=EXISTING_FILE, help="For tls://: PEM file of its key, without a password."),
    click.option("--insecure", is_flag=True, help="Allow a scheduler on another machine in the clear."),
    click.option("--scratch", type=FOLDER, help="Another disk for unfinished work; all workers must see it."),
    click.option("--read-block-bytes", type=click.IntRange(1, 1 << 30), help="Text is read in parts of this size."),
]


def build_options(command: CommandT) -> CommandT:
    """What ``build`` and ``plan`` have in common."""
    for option in reversed(_BUILD_OPTIONS):
        command = option(command)
    return access_options("Write shards in the clear, unsigned; marked in every output.")(output_options(command))


def request_of(flags: dict[str, Any]) -> Request:
    """What the flags of ``build`` and ``plan`` ask for.

    Raises:
        UsageError: settings are wrong, all of them at once; or flags contradict each other.
    """
    from sharding.preparation import DEFAULT_BLOCK_BYTES, Request

    return Request(
        inputs=flags["inputs"],
        corpus=flags["corpus"].absolute(),
        settings=_settings(flags),
        cluster=_cluster(flags),
        key_path=flags["record_key"],
        block_bytes=flags["read_block_bytes"] or DEFAULT_BLOCK_BYTES,
        scratch=flags["scratch"].absolute() if flags["scratch"] else None,
        ignore_space=flags.get("ignore_space", False),
        keys=key_source(
            flags["corpus"].absolute(),
            principal=flags["principal"],
            keyring=flags["keyring"],
            plaintext=flags["plaintext"],
        ),
        policy=_policy(flags),
    )


def _policy(flags: dict[str, Any]) -> Path | None:
    if flags["policy"] and flags["plaintext"]:
        raise click.UsageError("--plaintext and --policy: in the clear nobody can be kept out; give one of them")
    return flags["policy"].absolute() if flags["policy"] else None


def features_of(values: Sequence[str]) -> dict[str, str]:
    """Column, or function of one, by feature.

    Raises:
        click.UsageError: tells every value that is no NAME=COLUMN, by its place, and every name that is given twice.
    """
    features: dict[str, str] = {}
    wrong, twice = [], []
    for place, value in enumerate(values, start=1):
        name, _, column = value.partition("=")
        if not (name and column):
            wrong.append(str(place))
        elif name in features:
            twice.append(str(place))
        else:
            features[name] = column
    problems = []
    if wrong:
        rule = "write NAME=COLUMN, such as sex=gender_code, or NAME=FUNCTION(COLUMN)"
        problems.append(f"--feature, value {' and '.join(wrong)} of {len(values)}: {rule}")
    if twice:
        rule = "the name is given before; give each feature another name"
        problems.append(f"--feature, value {' and '.join(twice)} of {len(values)}: {rule}")
    if problems:
        raise click.UsageError("; ".join(problems))
    return features


def _cluster(flags: dict[str, Any]) -> ClusterOptions:
    from sharding.cluster import ClusterOptions
    from sharding.schedulers import certificates

    if flags["scheduler"] and flags["scheduler_file"]:
        raise click.UsageError("--scheduler and --scheduler-file name two schedulers; give one")
    options = ClusterOptions(
        workers=flags["workers"],
        scheduler=flags["scheduler"],
        scheduler_file=flags["scheduler_file"],
        tls=certificates(flags["tls_ca"], flags["tls_cert"], flags["tls_key"]),
        insecure=flags["insecure"],
    )
    options.address()  # so that a mistake is said before the inputs are read
    return options


def _settings(flags: dict[str, Any]) -> ShardingSettings:
    from schemas.settings import load_settings
    from sharding.config import ShardingSettings

    given: dict[str, Any] = {f"columns.{name}": flags[name] for name in MAPPING_FLAGS}
    given |= {f"columns.features.{name}": column for name, column in features_of(flags["feature"]).items()}
    given |= {name: flags[name] for name in SETTING_FLAGS}
    return load_settings(ShardingSettings, "sharding", flags=given, config_file=flags["config"])
