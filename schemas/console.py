"""What all three command lines share: exit codes, one-line errors, results on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schemas.errors import EXIT_BUG, EXIT_DONE, EXIT_SIGINT, EXIT_USAGE, PipelineError, TerminatedError
from schemas.paths import fault_of_path

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
SECONDS_BETWEEN_LINES = 5.0
SECONDS_BEFORE_RESENT = 0.05


def output_options(command: CommandT) -> CommandT:
    """Add ``--json`` and ``--verbose`` to a command."""
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")(command)
    return click.option("-v", "--verbose", count=True, help="Log more on stderr; -vv for debugging.")(command)


def launch(group: click.Group, program: str) -> int:
    """Run a command line and turn every outcome into an exit code and at most one error line."""
    _leave_no_core_file()
    try:
        # Not ``group.main``: it ends the process by itself, with code 1, when the reader of stdout goes away.
        with group.make_context(program, sys.argv[1:]) as context:
            outcome = group.invoke(context)
    except PipelineError as error:
        return _failed(str(error), error.exit_code)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        notice(error.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        hint = f" (see {program} --help)" if isinstance(error, click.UsageError) else ""
        return _failed(error.format_message() + hint, EXIT_USAGE)
    except (KeyboardInterrupt, click.Abort):
        _forget_the_interrupt()
        return _failed("stopped by SIGINT; run the same command again to resume", EXIT_SIGINT)
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the last resort, for panics of native libraries too: their
        # messages could quote a record, so they are not printed.
        return _unexpected(error)
    return outcome if isinstance(outcome, int) else EXIT_DONE


def _leave_no_core_file() -> None:
    """A crash dumps memory, and notes with it; processes that are started from here inherit the limit.

    One byte holds no core, and is the only limit that the kernel heeds too where a program takes cores by a pipe
    (core(5), "Piping core dumps to a program").
    """
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard if hard == 0 else 1, hard))


def emit(result: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a command's result on stdout: one JSON object, or lines for people."""
    if as_json:
        click.echo(json.dumps(result, sort_keys=True, ensure_ascii=False, allow_nan=False))
    else:
        for line in lines:
            click.echo(line)


def notice(message: str) -> None:
    """Say something to the person who runs the command, on stderr."""
    click.echo(message, err=True)


@contextmanager
def terminates_cleanly() -> Iterator[None]:
    """Turn SIGTERM into ``TerminatedError``, so that ``finally`` blocks run.

    Inside the block the signal is a ``BaseException``, which no library's ``except Exception`` can swallow. CPython
    does where nobody could catch it, as in ``__del__`` or a weak reference's callback; then the signal is sent again,
    by the real-time timer, which is ours within the block.
    """
    before = {number: signal.signal(number, handler) for number, handler in _HANDLERS.items()}
    told = sys.unraisablehook
    swallowed: list[object] = []

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, _Terminated):
            told(lost)
            return
        swallowed.append(lost.exc_type)
        signal.setitimer(signal.ITIMER_REAL, SECONDS_BEFORE_RESENT)

    sys.unraisablehook = unraisable
    try:
        yield
        if swallowed:  # and the block ended before the signal came again
            raise _Terminated
    except _Terminated:
        raise TerminatedError("stopped by SIGTERM; run the same command again to resume") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = told
        for number, handler in before.items():
            signal.signal(number, handler)


class NamedPath(click.Path):
    """A path that a file can have: the empty string of an unset variable would mean the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As a path.

        Raises:
            click.BadParameter: it is empty, or too long.
        """
        if fault := fault_of_path(value):
            self.fail(fault, param, ctx)
        return super().convert(value, param, ctx)


class _Terminated(BaseException):
    """SIGTERM has come."""


class Progress:
    """Progress of one step: a bar on a terminal, otherwise a line every five seconds. Writes to stderr only.

    With ``shown=False`` it only counts, for the ranks that leave speaking to rank 0.
    """

    def __init__(self, title: str, total: int, unit: str, *, shown: bool = True) -> None:
        self._shown = shown
        self._title, self._total, self._unit = title, total, unit
        self._done, self._said_at, self._started_at = 0, time.monotonic(), time.monotonic()
        self._bar: RichProgress | None = None

    def __enter__(self) -> Progress:
        if self._shown and sys.stderr.isatty():
            self._bar = _rich_bar()
            self._bar.start()
            self._bar.add_task(self._title, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, amount: int = 1) -> None:
        """Count finished units."""
        self._done += amount
        if self._bar:
            self._bar.update(self._bar.task_ids[0], advance=amount)
        elif self._shown and time.monotonic() - self._said_at >= SECONDS_BETWEEN_LINES:
            self._said_at = time.monotonic()
            rate = self._done / (self._said_at - self._started_at)
            notice(f"{self._title}: {self._done:,} of {self._total:,} {self._unit} ({rate:,.0f}/s)")


def _rich_bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return RichProgress(*columns, console=Console(stderr=True))


def _forget_the_interrupt() -> None:
    """Let CPython know that the interrupt was dealt with.

    If one comes while a string of code is run, as the decorators of dataclasses do during imports, CPython notes that
    nobody caught it, and then ends ``python -m`` by a signal whatever code the program chose. Each run of a string
    begins by taking that note back (``_Py_UnhandledKeyboardInterrupt`` in Python/pythonrun.c).
    """
    exec("")  # noqa: S102 - an empty constant


def _failed(message: str, exit_code: int) -> int:
    notice(f"error: {' '.join(message.splitlines())}")
    return exit_code


def _unexpected(error: BaseException) -> int:
    if isinstance(error, BrokenPipeError) and _nobody_reads_stdout():
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    from schemas.logs import frames

    return _failed(f"bug: {frames(error)}; please report this line", EXIT_BUG)


def _nobody_reads_stdout() -> bool:
    """Tell ``| head`` from a broken connection to a worker, which is a failure."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _raise_terminated(_signal: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough: what cleans up now is not to be stopped
    raise _Terminated


def _send_again(_signal: int, _frame: FrameType | None) -> None:
    """To whoever handles SIGTERM at this moment, which may be somebody who holds it back."""
    signal.raise_signal(signal.SIGTERM)


_HANDLERS = {signal.SIGTERM: _raise_terminated, signal.SIGALRM: _send_again}
