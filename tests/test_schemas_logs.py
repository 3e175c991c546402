"""A log line can hold numbers, file names and short tokens, and nothing else, whoever wrote it."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.logs import OUR_LOGGERS, SafeFormatter, frames

ROOT = Path(__file__).parents[1]
SECRET = "chest pain since Monday"


class Odd:
    """An object that fails or tells when it is printed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        if not self.text:
            raise RuntimeError(SECRET)
        return self.text

    __repr__ = __str__


class Spill:
    """A logger of our name outside of the hierarchy, where pytest's own handlers would format whatever comes."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.logger = logging.Logger("sharding.spill")
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(SafeFormatter())
        self.logger.addHandler(handler)


def line_of(message: object, *arguments: object, name: str = "sharding.spill") -> str:
    """The formatted line of one record."""
    record = logging.LogRecord(name, logging.WARNING, "/machine/sharding/spill.py", 12, message, arguments, None)
    return SafeFormatter().format(record)


def text_of(message: object, *arguments: object, name: str = "sharding.spill") -> str:
    """As ``line_of``, without time, level and logger."""
    return line_of(message, *arguments, name=name).split(f"{name}: ", 1)[1]


# --- what is printed


@pytest.mark.parametrize("package", OUR_LOGGERS)
@pytest.mark.parametrize(
    ("message", "arguments", "expected"),
    [
        ("started", (), "started"),
        ("%d of %d blocks", (3, 4), "3 of 4 blocks"),
        ("%.2f s, %s", (1.5, True), "1.50 s, True"),
        ("shard %s", ("d-0123456789ab-00003",), "shard d-0123456789ab-00003"),
        ("wrote %s", (Path("/machine/corpus/builds/b-1/shards/x.parquet"),), "wrote b-1/shards/x.parquet"),
        ("100%% of %d", (3,), "100% of 3"),
        ("100%", (), "100%"),
    ],
)
def test_numbers_paths_and_tokens_are_printed(
    package: str, message: str, arguments: tuple[object, ...], expected: str
) -> None:
    """Our own constant messages keep their counts, opaque ids and the ends of their paths."""
    assert text_of(message, *arguments, name=f"{package}.x") == expected


def test_a_line_has_time_level_and_logger() -> None:
    """Time in UTC to the second, level, logger, text."""
    record = logging.LogRecord("scoring.engine", logging.INFO, "engine.py", 1, "started", (), None)
    record.created = 86_400.25

    assert SafeFormatter().format(record) == "1970-01-02T00:00:00Z INFO scoring.engine: started"


# --- what is withheld


@given(text=st.text(min_size=1).filter(lambda text: not text.isascii() or not text.isprintable() or " " in text))
def test_text_is_withheld(text: str) -> None:
    """Any argument with a space, a line break or a letter beyond ASCII is replaced by its type."""
    assert text_of("note %s", text) == "note <str withheld>"


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        (SECRET, "str"),
        ("x" * 201, "str"),
        ("", "str"),
        ("two\nlines", "str"),
        (b"bytes", "bytes"),
        ([SECRET], "list"),
        ((SECRET,), "tuple"),
        ({"note": SECRET}, "dict"),
        (ValueError(SECRET), "ValueError"),
        (Odd(SECRET), "Odd"),
        (Odd(""), "Odd"),
        (None, "NoneType"),
        (1j, "complex"),
    ],
)
def test_every_other_argument_is_withheld(argument: object, kind: str) -> None:
    """Containers, exceptions and foreign objects leave their type's name only."""
    text = text_of("value %s and %d", argument, 5)

    assert text in (f"value <{kind} withheld> and 5", "message withheld (spill:12)")
    assert "chest" not in text


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("%d notes", (SECRET,)),
        ("%d notes", ()),
        ("%s and %s", (SECRET,)),
        ("no place", (SECRET,)),
        ("%(note)s", ({"note": SECRET},)),
        ("%d of %s", (float("inf"), SECRET)),
        ("%d of %s", (float("nan"), SECRET)),
        ("%c of %s", (10**9, SECRET)),
        ("%d of %s", (10**5000, SECRET)),
        ("%*d %s", (10**30, 1, SECRET)),
        ("%q", (SECRET,)),
        (ValueError(SECRET), ()),
        (Odd(SECRET), ()),
        (Odd(""), (1,)),
        ([SECRET], ()),
        (b"chest", ()),
    ],
)
def test_an_odd_call_prints_no_argument(
    message: object, arguments: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A message that cannot be formatted, or is none, is withheld; logging's own error report never gets to see it."""
    spill = Spill()

    spill.logger.warning(message, *arguments)

    said = spill.stream.getvalue()
    assert said.count("\n") == 1
    assert "chest" not in said
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["distributed.worker", "pyarrow", "shardings", "sharding_x", "py.warnings", "root"])
@pytest.mark.parametrize("arguments", [(), (SECRET,)])
def test_foreign_loggers_are_withheld(name: str, arguments: tuple[object, ...]) -> None:
    """Other libraries quote what they work on, so only the place of their message is printed."""
    text = text_of(f"failed on {SECRET}: %s" if arguments else f"failed on {SECRET}", *arguments, name=name)

    assert text == "message withheld (spill:12)"


def raised(error: BaseException) -> BaseException:
    """The exception, with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any exception is wanted
        return caught


@pytest.mark.parametrize("error", [ValueError(SECRET), KeyError(SECRET), ExceptionGroup(SECRET, [ValueError(SECRET)])])
def test_an_exception_is_logged_without_its_message(error: Exception) -> None:
    """``exception()`` prints type and places on the same line, not the text, nor that of its cause."""
    spill = Spill()

    try:
        raise RuntimeError(SECRET) from raised(error)
    except RuntimeError:
        spill.logger.exception("block %d failed", 3, stack_info=True)

    said = spill.stream.getvalue()
    assert said.count("\n") == 1
    assert "block 3 failed [RuntimeError at " in said
    assert "test_schemas_logs.py:" in said
    assert "chest" not in said
    assert str(ROOT) not in said


def test_frames_name_places_innermost_last() -> None:
    """Type, then at most four files with line numbers, without the machine's folders."""
    error = raised(ValueError(SECRET))

    text = frames(error)

    assert text.startswith("ValueError at ")
    assert "/tests/test_schemas_logs.py:" in text
    assert str(ROOT) not in text
    assert frames(ValueError(SECRET)) == "ValueError at unknown place"


# --- set up in a process


PROGRAM = """
import logging, sys
from schemas.logs import setup_logging
setup_logging(int(sys.argv[1]))
for name in ("sharding.x", "distributed.core"):
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(name).log(level, "level %d", level)
"""


@pytest.mark.parametrize(
    ("verbosity", "ours", "theirs"), [(0, [30], 1), (1, [20, 30], 1), (2, [10, 20, 30], 1), (9, [10, 20, 30], 1)]
)
def test_verbosity_is_for_our_packages_only(verbosity: int, ours: list[int], theirs: int) -> None:
    """-v and -vv show more of ours; other libraries stay at warnings, which are withheld; stdout stays clean."""
    done: Any = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(verbosity)], check=True, capture_output=True, text=True, cwd=ROOT
    )

    lines = done.stderr.splitlines()

    assert done.stdout == ""
    assert [line.rsplit(" ", 1)[1] for line in lines if "sharding.x" in line] == [str(level) for level in ours]
    assert sum("distributed.core: message withheld" in line for line in lines) == theirs
    assert len(lines) == len(ours) + theirs
