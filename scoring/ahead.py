"""Reading and encoding by a thread of its own, a bounded number of items ahead of the compute that uses them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

ItemT = TypeVar("ItemT")
SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_TO_END = 5.0


class _End:
    """What follows the last item: nothing, or what the maker raised."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[ItemT], *, depth: int = 2) -> Iterator[ItemT]:
    """The items in their order, made while the caller works on earlier ones.

    Args:
        items: Advanced by one other thread only.
        depth: Finished items that may wait.

    Raises:
        BaseException: what ``items`` raised, in its place.
    """
    finished: queue.Queue[ItemT | _End] = queue.Queue(depth)
    is_over = threading.Event()
    maker = threading.Thread(target=_make, args=(items, finished, is_over), name="ahead", daemon=True)
    maker.start()
    try:
        while not isinstance(item := finished.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        is_over.set()
        # A reader may hang in a dead file system: the thread is a daemon, which the process need not wait for.
        maker.join(SECONDS_TO_END)


def _make(items: Iterator[ItemT], finished: queue.Queue[ItemT | _End], is_over: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if not _put(finished, item, is_over):
                return
    except BaseException as raised:  # noqa: BLE001 - it is raised where the item was wanted
        error = raised
    _put(finished, _End(error), is_over)


def _put(finished: queue.Queue[ItemT | _End], item: ItemT | _End, is_over: threading.Event) -> bool:
    """Wait for room; false when nobody takes items any more."""
    while not is_over.is_set():
        try:
            finished.put(item, timeout=SECONDS_BETWEEN_LOOKS)
        except queue.Full:
            continue
        return True
    return False
