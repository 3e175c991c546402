"""Paths as people give them, and which of them no file can have."""

from __future__ import annotations

import os

MAX_NAME_BYTES = 255
# Linux takes 4,095; what is made in a folder has longer paths than the folder.
MAX_PATH_BYTES = 3_840


def fault_of_path(path: str | os.PathLike[str]) -> str | None:
    """What is wrong with a path that is no path at all; None where there can be such a file."""
    given = os.fsencode(path)
    if not given:
        return "empty; is a variable unset?"
    if b"\0" in given:
        return "a path with a NUL byte; name another"
    whole = os.path.abspath(given)  # noqa: PTH100 - pathlib has no bytes
    longest = max(map(len, given.split(b"/")))
    if longest > MAX_NAME_BYTES:
        return f"a name of {longest} bytes, at most {MAX_NAME_BYTES} are possible; name another"
    if len(whole) > MAX_PATH_BYTES:
        return f"a path of {len(whole)} bytes, at most {MAX_PATH_BYTES} are possible; name another"
    return None
