"""Every way in which a command can fail, with one exit code each.

A message is one line: *where: what was found, what was expected; what to do*. It holds file names, opaque ids, counts
and digests only. Each exception takes exactly one string, so it survives pickling between worker processes.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_BUG = 1
EXIT_USAGE = 2
EXIT_DATA = 65
EXIT_TEMPORARY = 75
EXIT_DENIED = 77
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class PipelineError(Exception):
    """Base of all expected failures."""

    exit_code = EXIT_BUG

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


class UsageError(PipelineError):
    """The command line or configuration cannot be carried out."""

    exit_code = EXIT_USAGE


class IntegrityError(PipelineError):
    """What is on disk is not what was sealed, or a ledger does not balance."""

    exit_code = EXIT_DATA


class DataError(PipelineError):
    """The input records break a rule that was asked for."""

    exit_code = EXIT_DATA


class TemporaryError(PipelineError):
    """The environment failed; the same command can succeed later."""

    exit_code = EXIT_TEMPORARY


class AccessDeniedError(PipelineError):
    """The principal was not granted what the command needs."""

    exit_code = EXIT_DENIED


class StoppedError(PipelineError):
    """Stopped by SIGINT; finished work is kept and a rerun resumes."""

    exit_code = EXIT_SIGINT


class TerminatedError(StoppedError):
    """Stopped by SIGTERM; finished work is kept and a rerun resumes."""

    exit_code = EXIT_SIGTERM


ERRORS_BY_EXIT_CODE: dict[int, type[PipelineError]] = {
    EXIT_USAGE: UsageError,
    EXIT_DATA: IntegrityError,
    EXIT_TEMPORARY: TemporaryError,
    EXIT_DENIED: AccessDeniedError,
    EXIT_SIGINT: StoppedError,
    EXIT_SIGTERM: TerminatedError,
}
