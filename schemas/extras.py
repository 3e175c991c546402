"""Libraries that few need: absent until their extra is installed, loaded where they are first used."""

from __future__ import annotations

import importlib
from typing import Any

from schemas.errors import UsageError


def optional_library(name: str, *, extra: str) -> Any:
    """A module of an extra of this project.

    Args:
        name: Of the module, dots and all.
        extra: What to install when it is absent.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        library = name.split(".", 1)[0]
        raise UsageError(f"{library}: not installed; install it with pip install 'exactppl[{extra}]'") from None
