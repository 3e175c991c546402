"""Logging that cannot print record text.

Our own messages are constant formats whose arguments are numbers, ``Path`` objects or short tokens; any other argument
is withheld. Messages of other libraries may quote what they were working on, so only their origin is printed.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType

from schemas.seals import label

OUR_LOGGERS = ("sharding", "scoring", "aggregate", "schemas")
TOKEN = re.compile(r"[A-Za-z0-9_.:/+=,\-]{1,200}")


class SafeFormatter(logging.Formatter):
    """One line a message: time, level, logger, text; nothing that could hold a record's content."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def format(self, record: logging.LogRecord) -> str:
        """The line; never raises for odd arguments."""
        safe = logging.LogRecord(
            record.name, record.levelno, record.pathname, record.lineno, _message(record), None, None, record.funcName
        )
        safe.created = record.created
        line = super().format(safe).replace("\n", " ")
        return f"{line} [{frames(record.exc_info[1])}]" if record.exc_info and record.exc_info[1] else line


def setup_logging(verbosity: int) -> None:
    """Send every log line to stderr: warnings, with -v information, with -vv debugging output of our packages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    logging.captureWarnings(True)
    threading.excepthook = _withheld
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(level)


def _withheld(failure: threading.ExceptHookArgs) -> None:
    """An exception that ends a thread, by type and place only."""
    if failure.exc_value is not None:
        logging.getLogger("schemas.logs").error("a thread failed", exc_info=failure.exc_value)


def frames(error: BaseException) -> str:
    """Type and places of an exception, innermost last; not its message, which may quote data."""
    places = _places(error.__traceback__)
    return f"{type(error).__name__} at {' < '.join(places[-4:]) or 'unknown place'}"


def _places(trace: TracebackType | None) -> list[str]:
    found = traceback.extract_tb(trace)
    return [f"{label(Path(frame.filename))}:{frame.lineno}" for frame in found]


def _message(record: logging.LogRecord) -> str:
    if record.name.split(".", 1)[0] not in OUR_LOGGERS:
        return f"message withheld ({record.module}:{record.lineno})"
    if not isinstance(record.msg, str):
        return f"message withheld ({record.module}:{record.lineno})"
    if not record.args:
        return record.msg
    arguments = record.args if isinstance(record.args, tuple) else (record.args,)
    try:
        return record.msg % tuple(map(_safe, arguments))
    except Exception:  # noqa: BLE001 - were it to escape, logging itself would print the raw arguments
        return f"message withheld ({record.module}:{record.lineno})"


def _safe(argument: object) -> object:
    if isinstance(argument, bool | int | float):
        return argument
    if isinstance(argument, Path):
        return label(argument)
    if isinstance(argument, str) and TOKEN.fullmatch(argument):
        return argument
    return f"<{type(argument).__name__} withheld>"
