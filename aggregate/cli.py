"""``python -m aggregate``: thin commands around verify → collect → report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schemas.access_options import ACCEPT_PLAINTEXT, ACCESS_OPTIONS, access_options, reader_access
from schemas.console import NamedPath, emit, notice, output_options
from schemas.version import VERSION

if TYPE_CHECKING:
    from aggregate.collect import Collected
    from aggregate.runs import Run
    from schemas.access import Access
    from schemas.folders import Build

FOLDER = NamedPath(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="exactppl")
def cli() -> None:
    """Verify a run against its build, pool exactly, and write the report.

    BUILD is a corpus folder (its current build is taken) or one build in it; RUN is the folder that scoring wrote.

    Exit codes: 0 done, 2 usage, 65 a check failed, 75 run again, 77 not granted.
    """


@cli.command()
@click.argument("build", type=FOLDER)
@click.argument("run", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Folder for the report; made when absent.")
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN[,COLUMN…]",
    help="Report the strata of these columns crossed; repeat for more tables. Default: department, and length_band.",
)
@click.option(
    "--min-cell", type=int, metavar="N", help="Hide strata with fewer than N records or patients; 0: none. [11]"
)
@click.option("--department-names", is_flag=True, default=None, help="Show departments by name, not by opaque code.")
@click.option("--force", is_flag=True, help="Replace another report in DIR.")
@click.option("--config", type=FOLDER, metavar="FILE", help="TOML file with an [aggregate] table.")
@access_options(ACCEPT_PLAINTEXT)
@output_options
def report(build: Path, run: Path, **options: Any) -> None:
    """Verify everything, then write report.json, report.html, report.md and strata.parquet."""
    from aggregate.config import ReportSettings
    from aggregate.crossings import parse_crossings
    from aggregate.outputs import PAGE_FILE, publish_report, require_outside, sign_report
    from aggregate.report import make_report
    from aggregate.terminal import report_lines
    from schemas.logs import setup_logging
    from schemas.settings import load_settings

    setup_logging(options["verbose"])
    flags = {"by": options["by"], "min_cell": options["min_cell"], "department_names": options["department_names"]}
    settings = load_settings(ReportSettings, "aggregate", flags=flags, config_file=options["config"])
    access = reader_access(build, **{name: options[name] for name in ACCESS_OPTIONS})
    opened_build, opened_run = _open(build, run, access)
    require_outside(options["out"], (opened_build.folder, opened_run.folder))
    crossings = parse_crossings(settings.by, opened_build.manifest.features)
    collected = _collect(opened_build, opened_run)
    made = make_report(opened_build, opened_run, collected=collected, crossings=crossings, settings=settings)
    if not publish_report(made, options["out"], force=options["force"]):
        notice("this report is already there; nothing was written")
    if access is not None:
        sign_report(made, options["out"], access)
    page = options["out"] / PAGE_FILE
    result = made.model_dump(mode="json", include={"title", "model", "marks", "whole", "crossings", "ledger"})
    emit({**result, "page": str(page)}, report_lines(made, str(page)), as_json=options["as_json"])


@cli.command()
@click.argument("build", type=FOLDER)
@click.argument("run", type=FOLDER)
@access_options(ACCEPT_PLAINTEXT)
@output_options
def verify(build: Path, run: Path, *, as_json: bool, verbose: int, **options: Any) -> None:
    """Check every seal, the exact cover, the totals and the ledger; write nothing."""
    from aggregate.report import marks
    from aggregate.terminal import check_lines
    from schemas.logs import setup_logging
    from schemas.signatures import policy_checks

    setup_logging(verbose)
    opened_build, opened_run = _open(build, run, reader_access(build, **options))
    collected = _collect(opened_build, opened_run)
    policies = {f"corpus: {name} as signed": count for name, count in policy_checks(opened_build).items()}
    checks = {**collected.checks, **collected.layout_checks, **policies}
    found = marks(opened_build, opened_run)
    result = {"checks": checks, "marks": found, "run_id": opened_run.header.run_id}
    emit(result, check_lines(checks, found), as_json=as_json)


def _open(build: Path, run: Path, access: Access | None) -> tuple[Build, Run]:
    from aggregate.runs import open_run
    from schemas.folders import open_build

    opened = open_build(build, access)
    return opened, open_run(run, access)


def _collect(build: Build, run: Run) -> Collected:
    from aggregate.collect import collect
    from schemas.console import Progress

    with Progress("verify", len(run.manifest.partials), "blocks") as progress:
        return collect(build, run, advance=progress.advance)
