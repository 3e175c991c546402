"""The command line of stage 1; see ``python -m sharding --help``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schemas.console import NamedPath, emit, notice, output_options, terminates_cleanly
from schemas.version import VERSION

if TYPE_CHECKING:
    from sharding.build import Request
    from sharding.cluster import ClusterOptions
    from sharding.config import ShardingSettings

_ADDRESS = re.compile(
    r"inproc://\S+|((tcp|tls|ws|wss|ucx)://)?([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})", re.ASCII
)
CommandT = TypeVar("CommandT", bound=Callable[..., Any])


EXISTING_FILE = NamedPath(exists=True, dir_okay=False, path_type=Path)
FOLDER = NamedPath(file_okay=False, path_type=Path)
NEW_FILE = NamedPath(dir_okay=False, path_type=Path)
MAPPING_FLAGS = ("id", "text", "department", "patient", "encounter", "time")
SETTING_FLAGS = (
    "format",
    "encoding",
    "seed",
    "target_tokens",
    "block_tokens",
    "bytes_per_token",
    "on_conflict",
    "max_record_bytes",
    "max_rejects",
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


class Feature(click.ParamType[tuple[str, str]]):
    """NAME=COLUMN, or NAME=FUNCTION(COLUMN)."""

    name = "NAME=COLUMN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first equals sign."""
        name, equals, column = str(value).partition("=")
        if not (name and equals and column):
            self.fail("write NAME=COLUMN, such as sex=gender_code, or NAME=FUNCTION(COLUMN)", param, ctx)
        return name, column


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
        type=Feature(),
        multiple=True,
        help="Case feature for strata, again for each; or NAME=year(COLUMN), age_band, sex, icd_chapter, ...",
    ),
    click.option("--format", help="auto (by suffix), csv, tsv, jsonl or parquet."),
    click.option("--encoding", help="Of text files: utf-8, utf-16, gb18030, cp1252, ..."),
    click.option("--seed", help="Of the placement."),
    click.option("--target-tokens", help="Estimated tokens per shard."),
    click.option("--block-tokens", help="Estimated tokens per block, or auto."),
    click.option("--bytes-per-token", help="For the estimate of tokens."),
    click.option("--on-conflict", help="One id with two texts: fail, or keep one of them."),
    click.option("--max-record-bytes", help="A longer text is rejected and counted."),
    click.option("--max-rejects", help="A count or a share such as 1%; more is an error."),
    click.option("--limit", help="Keep only the first N records in placement order."),
    click.option("--on-unknown", help="A department in no entry of [departments]: keep, unknown, or fail."),
    click.option("--group", help="Keep together in one shard: none, patient, or encounter."),
    click.option("--record-key", type=EXISTING_FILE, help="Key file from elsewhere; workers must see it too."),
    click.option("--workers", type=click.IntRange(1, 1_024), help="Local worker processes; all cores by default."),
    click.option("--scheduler", type=Address(), help="Running Dask scheduler; its workers must see all paths."),
    click.option("--scheduler-file", type=EXISTING_FILE, help="Its connection file; its workers must see all paths."),
    click.option("--tls-ca", type=EXISTING_FILE, help="For tls://: PEM file of the cluster's certificate authority."),
    click.option("--tls-cert", type=EXISTING_FILE, help="For tls://: PEM file of our certificate."),
    click.option("--tls-key", type=EXISTING_FILE, help="For tls://: PEM file of its key, without a password."),
    click.option("--insecure", is_flag=True, help="Allow a scheduler on another machine in the clear."),
    click.option("--read-block-bytes", type=click.IntRange(1, 1 << 30), help="Text is read in parts of this size."),
]


def build_options(command: CommandT) -> CommandT:
    """What ``build`` and ``plan`` have in common."""
    for option in reversed(_BUILD_OPTIONS):
        command = option(command)
    return output_options(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="exactppl %(version)s")
def cli() -> None:
    """Turn records into sealed, stratified shards, and account for every one of them."""


@cli.command()
@build_options
def build(*, as_json: bool, verbose: int, **flags: Any) -> None:
    """Build shards from CSV, TSV, JSON Lines and Parquet files, globs or folders.

    The same inputs and settings give the same shards for any number of workers. An interrupted build is resumed by
    running the same command again; a finished one is left as it is.
    """
    from schemas.logs import setup_logging
    from sharding.build import build_corpus
    from sharding.inspection import describe_build, lines_of

    setup_logging(verbose)
    with terminates_cleanly():
        request = _request(flags)
        notice("shards are written without encryption; the corpus folder's permissions are their only guard")
        committed, is_new = build_corpus(request)
    description = describe_build(committed)
    if not is_new:
        notice(_already_built(request.corpus, committed.manifest.build_id))
    emit({**description, "status": "built" if is_new else "already_built"}, lines_of(description), as_json=as_json)


@cli.command()
@build_options
def plan(*, as_json: bool, verbose: int, **flags: Any) -> None:
    """Read the inputs once and show what a build would write; a build of the same inputs goes on from there."""
    from schemas.logs import setup_logging
    from sharding.build import plan_corpus
    from sharding.inspection import describe_plan, lines_of

    setup_logging(verbose)
    with terminates_cleanly():
        description = describe_plan(*plan_corpus(_request(flags)))
    emit({**description, "status": "planned"}, lines_of(description), as_json=as_json)


@cli.command()
@click.argument("path", metavar="BUILD_OR_CORPUS", type=FOLDER)
@click.option("--names", is_flag=True, help="Show the departments' own names, from their views.")
@output_options
def inspect(path: Path, *, names: bool, as_json: bool, verbose: int) -> None:
    """Show departments, shards, records, tokens and the ledger of a build."""
    from schemas.folders import open_build
    from schemas.logs import setup_logging
    from sharding.inspection import describe_build, lines_of

    setup_logging(verbose)
    description = describe_build(open_build(path), with_names=names)
    emit(description, lines_of(description), as_json=as_json)


@cli.command()
@click.argument("path", metavar="BUILD_OR_CORPUS", type=FOLDER)
@click.option("--deep", is_flag=True, help="Read every record too: content digests, and no record twice.")
@output_options
def verify(path: Path, *, deep: bool, as_json: bool, verbose: int) -> None:
    """Check that a build is, byte for byte, what was sealed."""
    from schemas.folders import open_build
    from schemas.logs import setup_logging
    from schemas.verification import verify_build

    setup_logging(verbose)
    build = open_build(path)
    checked = verify_build(build, deep=deep)
    said = ", ".join(f"{count:,} {name}" for name, count in checked.items())
    result = {"build_id": build.manifest.build_id, "status": "verified", "checked": checked}
    emit(result, [f"{build.manifest.build_id}: {said} are as sealed"], as_json=as_json)


@cli.command()
@click.argument("corpus", type=FOLDER)
@click.argument("build_ids", nargs=-1, metavar="[BUILD_ID]...")
@click.option("--keep", type=click.IntRange(1), help="Instead of ids: all but the N last committed builds.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@output_options
def purge(corpus: Path, *, build_ids: tuple[str, ...], keep: int | None, dry_run: bool, **output: Any) -> None:
    """Remove builds that are not current, for good; runs that scored them can no longer be reported.

    With --keep the current build counts as one of the N, whenever it was committed. Unfinished builds are removed by
    their ids only.
    """
    from schemas.logs import setup_logging
    from sharding.inspection import purge_lines
    from sharding.purge import builds_beyond, builds_named
    from sharding.purge import purge as remove

    setup_logging(output["verbose"])
    if bool(build_ids) == (keep is not None):
        raise click.UsageError("name builds by their ids, or give --keep N; one of the two")
    with terminates_cleanly():
        chosen = builds_named(corpus, build_ids) if keep is None else builds_beyond(corpus, keep)
        purged = remove(corpus, chosen, dry_run=dry_run)
    result = {
        "status": "would_purge" if dry_run else "purged",
        "builds": [{"build_id": item.build_id, "num_bytes": item.num_bytes} for item in purged],
        "num_bytes": sum(item.num_bytes for item in purged),
    }
    emit(result, purge_lines(result), as_json=output["as_json"])


@cli.command()
@click.argument("path", metavar="OUT", type=NEW_FILE)
@click.option("--records", type=click.IntRange(1, 10**9), default=1_000, show_default=True, help="How many notes.")
@click.option(
    "--departments", type=click.IntRange(1, 10**6), default=4, show_default=True, help="How many departments."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Another seed, other notes."
)
@output_options
def sample(path: Path, *, records: int, departments: int, seed: int, **output: Any) -> None:
    """Write synthetic notes to OUT (.csv, .jsonl or .parquet) for demonstrations and benchmarks."""
    from schemas.logs import setup_logging
    from sharding.sample_files import write_sample

    setup_logging(output["verbose"])
    seal = write_sample(path, num_records=records, num_departments=departments, seed=seed)
    result = {"num_records": records, "num_departments": departments, "seed": seed, "seal": seal.model_dump()}
    lines = [f"{path.name}: {records:,} synthetic notes of {departments} departments, {seal.num_bytes:,} bytes"]
    emit(result, lines, as_json=output["as_json"])


def _already_built(corpus: Path, build_id: str) -> str:
    from schemas.folders import current_build_id

    current = current_build_id(corpus)
    said = "it is current" if current == build_id else f"{current} stays current (CURRENT names it)"
    return f"{build_id} is already built from these inputs and settings, and whole; nothing was done; {said}"


def _request(flags: dict[str, Any]) -> Request:
    from sharding.build import DEFAULT_BLOCK_BYTES, Request

    return Request(
        inputs=flags["inputs"],
        corpus=flags["corpus"].absolute(),
        settings=_settings(flags),
        cluster=_cluster(flags),
        key_path=flags["record_key"],
        block_bytes=flags["read_block_bytes"] or DEFAULT_BLOCK_BYTES,
    )


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

    names = [name for name, _ in flags["feature"]]
    if len(set(names)) < len(names):
        raise click.UsageError("--feature: one name is given twice; give each feature another name")
    given: dict[str, Any] = {f"columns.{name}": flags[name] for name in MAPPING_FLAGS}
    given |= {f"columns.features.{name}": column for name, column in flags["feature"]}
    given |= {name: flags[name] for name in SETTING_FLAGS}
    return load_settings(ShardingSettings, "sharding", flags=given, config_file=flags["config"])
