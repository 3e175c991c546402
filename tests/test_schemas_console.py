"""Every way in which a command can end has one exit code and at most one line, and no line quotes data.

Each case runs a real command line in a process of its own, since exit codes, pipes and signals belong to processes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import errors
from tests.pipelines import environment

ROOT = Path(__file__).parents[1]
SECRET = "synthetic note: chest pain"
PROGRAM = f"""
import os, signal, sys, time
import click
from schemas import errors
from schemas.console import emit, launch, notice, output_options, terminates_cleanly

SECRET = {SECRET!r}

@click.group()
@click.version_option("1.2.3", prog_name="demo")
def cli():
    "A demonstration."

@cli.command()
@click.argument("name")
def fail(name):
    raise getattr(errors, name)("run/file.json: found 1,\\nexpected 2; run again")

@cli.command()
@click.argument("name")
def bug(name):
    kind = {{"recursion": RecursionError, "memory": MemoryError, "key": KeyError, "os": OSError, "eof": EOFError,
            "stop": StopIteration, "pipe": BrokenPipeError, "group": ExceptionGroup}}[name]
    raise kind(SECRET, [ValueError(SECRET)]) if name == "group" else kind(SECRET)

@cli.command()
def chained():
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        raise RuntimeError(SECRET) from error

@cli.command()
@output_options
def report(as_json, verbose):
    emit({{"perplexity": 6.5, "name": "科室"}}, ["perplexity 6.5", "done"], as_json=as_json)
    notice(f"verbosity {{verbose}}")

@cli.command()
@click.option("--count", type=int, required=True)
def typed(count):
    pass

@cli.command()
def spam():
    while True:
        click.echo("x" * 100)

@cli.command()
def interrupt():
    raise KeyboardInterrupt

@cli.command()
def interrupt_code():
    exec("raise KeyboardInterrupt")

@cli.command()
@click.argument("code", type=int)
def leave(code):
    click.get_current_context().exit(code)

@cli.command()
@click.argument("code", type=int)
def give(code):
    return code

@cli.command()
@click.argument("marker")
def wait(marker):
    with terminates_cleanly():
        try:
            click.echo("ready")
            time.sleep(60)
        finally:
            open(marker, "w").close()

class Ended:
    def __init__(self, signals):
        self.signals = signals

    def __del__(self):
        for number in self.signals:
            signal.raise_signal(number)
            sum(range(100))

@cli.command()
@click.argument("marker")
@click.option("--again", is_flag=True)
@click.option("--waits", is_flag=True)
def swallow(marker, again, waits):
    "The signal comes where nobody can catch it, once or twice, in a block that goes on or ends at once."
    with terminates_cleanly():
        try:
            Ended([signal.SIGTERM])
            while waits:
                if again:
                    again = False
                    time.sleep(0.02)
                    Ended([signal.SIGTERM])
                time.sleep(0.01)
        finally:
            time.sleep(0.2 * waits)
            open(marker, "w").close()

@cli.command()
def restore():
    told, handlers = sys.unraisablehook, [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    with terminates_cleanly():
        Ended.__del__ = lambda self: 1 / 0
        Ended([])
    assert (sys.unraisablehook, signal.getitimer(signal.ITIMER_REAL)) == (told, (0.0, 0.0))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)] == handlers

sys.exit(launch(cli, "python -m demo"))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The demonstration command line, with these arguments."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=False, capture_output=True, text=True, cwd=ROOT, timeout=60
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    """As ``run``, still running, once it said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("PipelineError", 1),
        ("UsageError", 2),
        ("IntegrityError", 65),
        ("DataError", 65),
        ("TemporaryError", 75),
        ("AccessDeniedError", 77),
        ("StoppedError", 130),
        ("TerminatedError", 143),
    ],
)
def test_every_error_has_its_code_and_one_line(name: str, code: int) -> None:
    """An expected failure is its own message on stderr, in one line, and nothing on stdout."""
    done = run("fail", name)

    assert done.returncode == code == getattr(errors, name).exit_code
    assert done.stderr == "error: run/file.json: found 1, expected 2; run again\n"
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["recursion", "memory", "key", "os", "eof", "stop", "pipe", "group"])
def test_a_bug_names_its_place_and_not_its_message(name: str) -> None:
    """An unforeseen exception is code 1 and one line with type and places; what it says could be a record."""
    done = run("bug", name)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: bug: ")
    assert "Error at " in done.stderr or "StopIteration at " in done.stderr or "ExceptionGroup at " in done.stderr
    assert "chest" not in done.stdout + done.stderr


def test_a_chained_bug_does_not_tell_its_cause() -> None:
    """The message of the exception behind the exception is withheld too."""
    done = run("chained")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: bug: RuntimeError at ")
    assert "chest" not in done.stderr
    assert str(ROOT) not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope"], "No such command 'nope'"),
        (["typed"], "Missing option '--count'"),
        (["typed", "--count", "x"], "Invalid value for '--count'"),
        (["typed", "--cuont", "1"], "No such option"),
        (["give"], "Missing argument"),
        (["spam", "extra"], "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_code_2_and_one_line(arguments: list[str], part: str) -> None:
    """The line says what is wrong and where help is."""
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert part in done.stderr
    assert done.stderr.endswith("(see python -m demo --help)\n")
    assert len(done.stderr.splitlines()) == 1


def test_no_command_shows_the_help_on_stderr() -> None:
    """A bare call is a usage error whose cure is the list of commands."""
    done = run()

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: python -m demo ")
    assert "A demonstration." in done.stderr
    assert "\n  report" in done.stderr


@pytest.mark.parametrize(
    ("flag", "start_of_output"), [("--help", "Usage: python -m demo"), ("--version", "demo, version")]
)
def test_help_and_version_are_results(flag: str, start_of_output: str) -> None:
    """They go to stdout with code 0."""
    done = run(flag)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(start_of_output)


def test_json_is_one_object_on_stdout() -> None:
    """With ``--json`` stdout parses as a whole; people's words go to stderr."""
    done = run("report", "--json", "-vv")

    assert json.loads(done.stdout) == {"perplexity": 6.5, "name": "科室"}
    assert done.stdout.count("\n") == 1
    assert done.stderr == "verbosity 2\n"


def test_without_json_the_lines_are_for_people() -> None:
    """The same result as lines."""
    done = run("report")

    assert (done.returncode, done.stdout) == (0, "perplexity 6.5\ndone\n")


@pytest.mark.parametrize("command", ["leave", "give"])
@pytest.mark.parametrize("code", [0, 1, 2, 65, 75, 77])
def test_a_command_can_choose_its_code(command: str, code: int) -> None:
    """What a command returns, or leaves its context with, is the process's code."""
    assert run(command, str(code)).returncode == code


def test_an_interrupt_is_code_130_and_one_line() -> None:
    """Ctrl-C leaves one line that says how to go on."""
    done = run("interrupt")

    assert done.returncode == 130
    assert done.stderr == "error: stopped by SIGINT; run the same command again to resume\n"


def test_an_interrupt_within_code_that_an_import_runs_is_code_130_too(tmp_path: Path) -> None:
    """The interpreter forgets what it noted of it, and does not end ``python -m`` by a signal after our line."""
    (tmp_path / "demo.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "demo", "interrupt-code"]

    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=60
    )

    assert done.returncode == 130
    assert done.stderr == "error: stopped by SIGINT; run the same command again to resume\n"


@pytest.mark.parametrize(("sent", "code", "name"), [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "SIGINT")])
def test_a_signal_stops_cleanly(sent: signal.Signals, code: int, name: str, tmp_path: Path) -> None:
    """A signal in the middle of work runs the ``finally`` blocks, then gives its code and one line."""
    process = start("wait", str(tmp_path / "cleaned"))

    process.send_signal(sent)
    _, said = process.communicate(timeout=30)

    assert process.returncode == code
    assert said == f"error: stopped by {name}; run the same command again to resume\n"
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("flags", [[], ["--waits"], ["--waits", "--again"]], ids=["ends", "waits", "twice"])
def test_a_signal_that_nobody_could_catch_stops_all_the_same(flags: list[str], tmp_path: Path) -> None:
    """CPython swallows what a ``__del__`` raises; the signal comes again, and what cleans up then is not stopped."""
    done = run("swallow", str(tmp_path / "cleaned"), *flags)

    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr == "error: stopped by SIGTERM; run the same command again to resume\n"
    assert (tmp_path / "cleaned").exists()


def test_other_errors_that_nobody_could_catch_are_told_as_ever() -> None:
    """And afterwards handlers, hook and timer are as they were."""
    done = run("restore")

    assert done.returncode == 0
    assert "Exception ignored in" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    """``| head`` ends the command quietly."""
    process = start("spam")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()
    said = process.stderr.read()

    assert process.wait(timeout=30) == 0
    assert said == ""
    process.stderr.close()
