"""``python -m scoring``: thin commands around plan → run → status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schemas.access_options import ACCEPT_PLAINTEXT, ACCESS_OPTIONS, access_options, reader_access
from schemas.console import NamedPath, emit, notice, output_options, terminates_cleanly
from schemas.version import VERSION

if TYPE_CHECKING:
    from scoring.config import ScoringSettings

FOLDER = NamedPath(path_type=Path)
MAX_RANKS = 65_536
PRECISION_HELP = "fp32 (default), fp64, tf32, mixed, bf16, fp16; or by positions of a record: fp32:512,mixed."
CommandT = TypeVar("CommandT", bound=Callable[..., Any])
MODEL_OPTIONS = (
    click.option("--config", type=FOLDER, metavar="FILE", help="TOML file with a [scoring] table."),
    click.option("--tile-rows", type=click.Choice(["auto", "1"]), help="1: each row in a tile of its own."),
    click.option("--memory-budget", metavar="BYTES", help="Memory beside the weights, such as 2GiB."),
    click.option("--tile-tokens", type=int, metavar="N", help="Tokens of one forward pass. Default: 512."),
    click.option("--threads-per-rank", type=int, metavar="N", help="Default: the node's cores, shared out."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), help="Default: auto."),
    click.option("--precision", metavar="P[:N,P…]", help=PRECISION_HELP),
    click.option("--prefix", type=click.Choice(["auto", "bos", "eos", "none"]), help="Unscored first token."),
    click.option("--stride", type=int, metavar="N", help="Step between windows. Default: --max-length."),
    click.option("--max-length", type=int, metavar="N", help="Tokens of a window. Default: the model's limit."),
    click.option("--tokenizer", type=FOLDER, metavar="DIR", help="Tokenizer folder, if not the model's own."),
    click.option("--model", type=FOLDER, metavar="DIR_OR_GGUF", help="Hugging Face folder, or GGUF file."),
)


def model_options(command: CommandT) -> CommandT:
    """Add the options that decide what is computed."""
    for option in MODEL_OPTIONS:
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="exactppl")
def cli() -> None:
    """Score every record of a build with a language model, the same bits for any number of ranks.

    BUILD is a corpus folder (its current build is taken) or one build in it.

    Exit codes: 0 done, 2 usage, 65 data or verification, 75 run again, 77 access, 130 and 143 stopped.
    Under torchrun a failed rank always gives 1; `status` tells the true code.
    """


@cli.command()
@click.argument("build", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, metavar="RUN", help="Run folder; resumed when it holds this run.")
@model_options
@click.option("--context", type=click.Choice(["none", "encounter"]), help="Earlier notes before a record, unscored.")
@click.option("--pin", type=click.Choice(["auto", "off"]), help="Bind each rank to its own cores. Default: auto.")
@click.option("--strict/--no-strict", default=None, help="Refuse a device on which neighbours change a row's bits.")
@click.option("--max-quarantined", type=float, metavar="SHARE", help="Tolerated non-finite records. Default: 0.001.")
@click.option("--precision-check", metavar="SHARE", help="Records of reduced bands computed in fp32 too, as 0.5%.")
@click.option("--max-drift", metavar="SHARE", help="Tolerated drift of token perplexity in a band. Default: 0.3%.")
@click.option("--on-drift", type=click.Choice(["fail", "fp32"]), help="Beyond it: fail (default), or score in fp32.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Silence after which a rank is lost. Default: 300.")
@click.option("--dedup/--no-dedup", default=None, help="Compute equal records of a department once. Default: on.")
@click.option(
    "--cache", type=FOLDER, metavar="DIR", help="Take losses of equal records from earlier runs, add new ones."
)
@click.option(
    "--token-classes", is_flag=True, default=None, help="Split losses by class of token and by position in the record."
)
@click.option("--lexicon", multiple=True, metavar="[NAME=]FILE", help="A class of its terms, one a line; repeatable.")
@click.option("--units", type=FOLDER, metavar="FILE", help="TOML list of units, if not the package's own.")
@click.option("--position-bands", metavar="N,N…", help="Where bands after the first begin. Default: 32,128,512,2048.")
@click.option("--limit-blocks", type=int, metavar="N", help="Score the first N blocks only; marked in every output.")
@access_options(ACCEPT_PLAINTEXT)
@output_options
def run(build: Path, out: Path, *, as_json: bool, verbose: int, **options: Any) -> None:
    """Score a build; start with torchrun for several ranks.

    An interrupted run is resumed by the same command, with any number of ranks.
    """
    from schemas.logs import setup_logging
    from scoring.assignment import rank_identity
    from scoring.run import run_rank

    setup_logging(verbose)
    access = reader_access(build, **{name: options.pop(name) for name in ACCESS_OPTIONS})
    settings = _settings(options)
    identity = rank_identity()
    with terminates_cleanly():
        manifest = run_rank(build, out, settings, identity=identity, access=access)
    if identity.rank == 0:
        from scoring.summary import summary, summary_lines

        figures = summary(manifest, out)
        emit(figures, summary_lines(figures), as_json=as_json)


@cli.command()
@click.argument("build", type=FOLDER)
@click.option("--ranks", type=click.IntRange(1, MAX_RANKS), default=1, show_default=True, help="Ranks to plan for.")
@click.option("--limit-blocks", type=click.IntRange(min=1), metavar="N", help="Plan the first N blocks only.")
@access_options(ACCEPT_PLAINTEXT)
@output_options
def plan(build: Path, *, ranks: int, limit_blocks: int | None, as_json: bool, verbose: int, **options: Any) -> None:
    """Show how the blocks of a build would be dealt to ranks; loads no model."""
    from schemas.dealing import assign, imbalance
    from schemas.folders import open_build
    from schemas.logs import setup_logging
    from scoring.assignment import blocks_of

    setup_logging(verbose)
    blocks = blocks_of(open_build(build, reader_access(build, **options)).manifest, limit=limit_blocks)
    dealt = assign(blocks, ranks)
    rows = [
        {"rank": rank, "num_blocks": len(keys), "estimated_tokens": sum(blocks[key] for key in keys)}
        for rank, keys in enumerate(dealt)
    ]
    ratio = imbalance(blocks, dealt)
    lines = ["rank  blocks  estimated tokens"]
    lines += [f"{row['rank']:4d}  {row['num_blocks']:6,d}  {row['estimated_tokens']:16,d}" for row in rows]
    lines.append(f"busiest rank over mean: {ratio:.3f}")
    emit({"ranks": rows, "max_over_mean": ratio}, lines, as_json=as_json)


@cli.command()
@click.argument("folder", metavar="RUN", type=FOLDER)
@click.option("--watch", "is_watched", is_flag=True, help="Show it again and again until the run ends.")
@output_options
def status(folder: Path, *, is_watched: bool, as_json: bool, verbose: int) -> int:
    """Show what each rank was last doing, and exit with the run's true code: 0 when it is complete."""
    from schemas.logs import setup_logging
    from scoring.status import true_exit_code
    from scoring.vitals import vitals_line
    from scoring.watch import screen, vitals_in, watch

    setup_logging(verbose)
    if is_watched:
        with screen(quiet=as_json) as shown:
            ranks = watch(folder, shown)
    else:
        ranks = vitals_in(folder)
    exit_code = true_exit_code(folder, [rank.status for rank in ranks])
    result = {
        "exit_code": exit_code,
        "ranks": [
            rank.status.model_dump(mode="json")
            | {name: getattr(rank, name) for name in ("age_seconds", "tokens_per_second", "eta_seconds", "is_silent")}
            for rank in ranks
        ],
    }
    emit(result, [*map(vitals_line, ranks), f"run: exit code {exit_code}"], as_json=as_json)
    return exit_code


@cli.command()
@model_options
@output_options
def selftest(*, as_json: bool, verbose: int, **options: Any) -> None:
    """Prove on this device that a record's loss depends on nothing but the record."""
    from schemas.logs import setup_logging
    from scoring.assignment import rank_identity
    from scoring.session import open_session

    setup_logging(verbose)
    settings = _settings({**options, "strict": True})
    notice("loading the model and running a few tiles")
    with open_session(settings, None, identity=rank_identity()) as session:
        outcomes = session.selftest.outcomes()
        shape = session.fingerprint["device"]["class"]
    lines = [f"device           {shape}", *(f"{claim:16s} {outcome}" for claim, outcome in outcomes.items())]
    emit({"device": shape, "selftest": outcomes}, lines, as_json=as_json)


def _settings(options: dict[str, Any]) -> ScoringSettings:
    from schemas.settings import load_settings
    from scoring.config import ScoringSettings

    config_file = options.pop("config")
    return load_settings(ScoringSettings, "scoring", flags=options, config_file=config_file)
