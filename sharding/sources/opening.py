"""How text is opened: an input as it is, its UTF-8 copy in the scratch folder through that folder's key.

Adapters are given paths and know nothing of keys, so the task that runs them says how copies are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from schemas.seals import opened

Opener = Callable[[Path], AbstractContextManager[BinaryIO]]
_opener: ContextVar[Opener] = ContextVar("opener", default=opened)


def opened_text(path: Path) -> AbstractContextManager[BinaryIO]:
    """A text file, open for reading from anywhere in it; errors as ``schemas.seals.opened``."""
    return _opener.get()(path)


@contextmanager
def opening_through(opener: Opener) -> Iterator[None]:
    """Let an opener stand for ``schemas.seals.opened`` within the block."""
    token = _opener.set(opener)
    try:
        yield
    finally:
        _opener.reset(token)
