"""Every failure is one line with one exit code, and keeps both between processes."""

from __future__ import annotations

import pickle

import pytest

from schemas import errors
from schemas.errors import ERRORS_BY_EXIT_CODE, IntegrityError, PipelineError

ERROR_CLASSES = sorted(
    (item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, PipelineError)),
    key=lambda item: item.__name__,
)
CODES = {
    "AccessDeniedError": 77,
    "DataError": 65,
    "IntegrityError": 65,
    "PipelineError": 1,
    "StoppedError": 130,
    "TemporaryError": 75,
    "TerminatedError": 143,
    "UsageError": 2,
}


def test_exit_codes_are_those_of_the_manual() -> None:
    """Schedulers rely on the numbers, so they are frozen here."""
    found = {item.__name__: item.exit_code for item in ERROR_CLASSES}

    assert found == CODES


def test_every_code_leads_back_to_an_error() -> None:
    """A rank's exit code, read from its status file, becomes an error of that code again."""
    codes = {item.exit_code for item in ERROR_CLASSES} - {1}

    assert {code: item.exit_code for code, item in ERRORS_BY_EXIT_CODE.items()} == {code: code for code in codes}


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
def test_errors_pickle(error_class: type[PipelineError]) -> None:
    """An error keeps its type, text and code on its way between processes."""
    error = error_class("a/b: found 1, expected 2; run again")

    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), again.exit_code) == (error_class, str(error), error.exit_code)


@pytest.mark.parametrize("separator", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_message_is_one_line(separator: str) -> None:
    """A file name with a line break of any alphabet cannot forge a second log line."""
    error = IntegrityError(f"odd{separator}name: found 1")

    assert str(error) == "odd name: found 1"
