"""TOML files that people write, of a bounded size."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from schemas.errors import UsageError
from schemas.seals import label, open_regular

MAX_TOML_BYTES = 1 << 24


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file; ``what`` it should be is told where it is not.

    Raises:
        UsageError: the file cannot be read, is too large, or is no TOML; it is never quoted.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MAX_TOML_BYTES + 1)
        if len(content) > MAX_TOML_BYTES:
            raise UsageError(f"{label(path)}: over {MAX_TOML_BYTES} bytes; name a {what}")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{label(path)}: {os.strerror(error.errno or 0)}; name a readable {what} file") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{label(path)}: not valid TOML; mend it") from None
