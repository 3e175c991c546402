"""The folder of a run: what may lie there, and one job at a time that writes to it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from schemas.errors import TemporaryError, UsageError
from schemas.folders import Build
from schemas.locks import lock, opened_to_lock, wrapped_lock
from schemas.manifests import AUDIT_FOLDER, COMPLETE_FILE, LOCK_FILE, PARTIALS_FOLDER, RUN_FILE, STATUS_FOLDER
from schemas.seals import TEMPORARY_PREFIX, label, wrapped_write
from schemas.signing import SUFFIX

KNOWN = {AUDIT_FOLDER, RUN_FILE, COMPLETE_FILE, f"{COMPLETE_FILE}{SUFFIX}", LOCK_FILE, PARTIALS_FOLDER, STATUS_FOLDER}

logger = logging.getLogger("scoring.run")


def require_run_folder(run: Path, build: Build) -> None:
    """The run goes to a folder that is a run's or empty, and is no part of what a build seals.

    Raises:
        UsageError: it is another folder.
    """
    if run.resolve().is_relative_to(build.folder.resolve()):
        raise UsageError(f"{label(run)}: inside a build, which is sealed; name a folder beside it with --out")
    try:
        found = {path.name for path in run.iterdir()} if run.exists() else set()
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise wrapped_write(run, error) from None
    if {name for name in found - KNOWN if not name.startswith(TEMPORARY_PREFIX)}:
        raise UsageError(f"{label(run)}: holds files that are no run's; name an empty or absent folder with --out")


def locked_run(run: Path) -> int:
    """Hold the run against a second job; returns what is to be closed in the end.

    Raises:
        TemporaryError: another job is at work.
    """
    try:
        descriptor = opened_to_lock(run / LOCK_FILE)
    except OSError as error:
        raise wrapped_lock(run / LOCK_FILE, error) from None
    try:
        is_held = lock(descriptor, wait=False)
    except OSError:
        logger.warning("the file system has no locks; see that only one job writes to %s", run)
        return descriptor
    if not is_held:
        os.close(descriptor)
        raise TemporaryError(f"{label(run)}: another scoring job is at work; wait for it")
    return descriptor
