"""Signals wait while workers start: a half-started Dask cluster can neither be closed nor left alone.

SIGINT and SIGTERM are kept until the block ends, which takes a second or two, and then do what they always do. SIGINT
is blocked as well, so that threads and processes started within inherit the block: a Ctrl-C goes to the whole
foreground group, and it is the parent, not every worker for itself, that ends the work.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

HELD = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Hold SIGINT and SIGTERM back; gives a function that lets those through that have come so far.

    Outside the main thread, where no signal is ever handled, nothing is held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in HELD}

    def release() -> None:
        for number in sorted(set(came)):
            came.clear()
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, None)

    # Its start, which the first child process would cause, unblocks SIGINT in the thread that starts the child.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield release
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        release()
