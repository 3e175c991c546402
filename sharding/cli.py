"""The command line of stage 1; see ``python -m sharding --help``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from schemas.access_options import ACCEPT_PLAINTEXT, access_options, reader_access
from schemas.console import emit, notice, output_options, terminates_cleanly
from schemas.version import VERSION
from sharding.audit_cli import audit
from sharding.keys_cli import keys
from sharding.options import ANY_PATH, FOLDER, NEW_FILE, build_options, request_of


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="exactppl %(version)s")
def cli() -> None:
    """Turn records into sealed, stratified shards, and account for every one of them."""


cli.add_command(audit)
cli.add_command(keys)


@cli.command()
@click.option("--ignore-space", is_flag=True, help="Begin although a disk seems too small.")
@build_options
def build(*, as_json: bool, verbose: int, **flags: Any) -> None:
    """Build shards from tables (CSV, TSV, JSON Lines, Parquet) or exports (FHIR, MIMIC, OMOP): files, globs or folders.

    The same inputs and settings give the same shards for any number of workers. An interrupted build is resumed by
    running the same command again; a finished one is left as it is.
    """
    from schemas.logs import setup_logging
    from sharding.build import build_corpus
    from sharding.inspection import describe_build, lines_of

    setup_logging(verbose)
    with terminates_cleanly():
        request = request_of(flags)
        if request.keys is None:
            notice("shards are written without encryption; the corpus folder's permissions are their only guard")
        committed, is_new = build_corpus(request)
    description = describe_build(committed)
    if not is_new:
        notice(_already_built(request.corpus, committed.manifest.build_id))
    emit({**description, "status": "built" if is_new else "already_built"}, lines_of(description), as_json=as_json)


@cli.command()
@click.option("--ignore-space", is_flag=True, help="Begin although a disk seems too small.")
@click.option("--dry-run", is_flag=True, help="Keep nothing but new keys, and the ledger if it is refused.")
@build_options
def plan(*, dry_run: bool, as_json: bool, verbose: int, **flags: Any) -> None:
    """Read the inputs once and show what a build would write; a build of the same inputs goes on from there."""
    from schemas.logs import setup_logging
    from sharding.build import plan_corpus
    from sharding.inspection import describe_plan, lines_of

    setup_logging(verbose)
    with terminates_cleanly():
        description = describe_plan(plan_corpus(request_of(flags), dry_run=dry_run))
    emit({**description, "status": "planned"}, lines_of(description), as_json=as_json)


@cli.command()
@click.argument("path", metavar="BUILD_OR_CORPUS", type=ANY_PATH)
@click.option("--names", is_flag=True, help="Show the departments' own names, from their views.")
@access_options(ACCEPT_PLAINTEXT)
@output_options
def inspect(path: Path, *, names: bool, as_json: bool, verbose: int, **options: Any) -> None:
    """Show departments, shards, records, tokens and the ledger of a build, or the ledger of a refused one.

    A refused build has a file, CORPUS/refused/BUILD_ID.json.
    """
    from schemas.documents import read_document
    from schemas.folders import open_build
    from schemas.logs import setup_logging
    from schemas.manifests import Refusal
    from sharding.inspection import describe_build, lines_of, refusal_lines

    setup_logging(verbose)
    if path.is_file():
        refused = {**read_document(path, Refusal).model_dump(mode="json"), "status": "refused"}
        emit(refused, refusal_lines(refused), as_json=as_json)
        return
    description = describe_build(open_build(path, reader_access(path, **options)), with_names=names)
    emit(description, lines_of(description), as_json=as_json)


@cli.command()
@click.argument("path", metavar="BUILD_OR_CORPUS", type=FOLDER)
@click.option("--deep", is_flag=True, help="Read every record too: content digests, and no record twice.")
@click.option(
    "--require-signature", "public_key", type=NEW_FILE, metavar="KEY", help="Signed by this key: a PEM or hex file."
)
@click.option("--view", "code", metavar="CODE", help="Only this department's files, by COMMITTED and its view alone.")
@access_options(ACCEPT_PLAINTEXT)
@output_options
def verify(path: Path, *, code: str | None, **options: Any) -> None:
    """Check that a build is, byte for byte, what was sealed, and signed by whom the keyring or KEY names."""
    if code is None:
        _verify_whole(path, **options)
    else:
        _verify_view(path, code, **options)


def _verify_whole(
    path: Path, *, deep: bool, public_key: Path | None, as_json: bool, verbose: int, **options: Any
) -> None:
    from schemas.folders import open_build
    from schemas.logs import setup_logging
    from schemas.signatures import policy_checks, verify_signatures
    from schemas.signing import read_public_key
    from schemas.verification import verify_build

    setup_logging(verbose)
    build = open_build(path, reader_access(path, **options))
    checked = {**verify_build(build, deep=deep), **policy_checks(build)}
    if public_key:
        checked["signatures"] = verify_signatures(build, [read_public_key(public_key)])
    said = ", ".join(f"{count:,} {name}" for name, count in checked.items())
    result = {"build_id": build.manifest.build_id, "status": "verified", "checked": checked}
    emit(result, [f"{build.manifest.build_id}: {said} are as sealed"], as_json=as_json)


def _verify_view(
    path: Path, code: str, *, deep: bool, public_key: Path | None, as_json: bool, verbose: int, **options: Any
) -> None:
    import re

    from schemas.logs import setup_logging
    from schemas.node_view import verify_view
    from schemas.patterns import CODE
    from schemas.signing import read_public_key

    setup_logging(verbose)
    if deep or not re.fullmatch(CODE, code):
        raise click.UsageError("--view: takes the code of a department (d-...), and goes without --deep")
    access = None if public_key else reader_access(path, **options)
    if public_key is None and access is None:
        raise click.UsageError("--view: nobody's signature is known; give --keyring, or --require-signature")
    trusted = [read_public_key(public_key)] if public_key else list(access.builders if access else ())
    checked = verify_view(path, code, trusted)
    said = ", ".join(f"{count:,} {name}" for name, count in checked.items())
    emit({"view": code, "status": "verified", "checked": checked}, [f"{code}: {said} hold"], as_json=as_json)


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
