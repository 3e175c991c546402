"""The four files of a report: made in memory from one value, then published, ``report.json`` last."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from aggregate.html import html_bytes
from aggregate.markdown import markdown_bytes
from aggregate.strata_table import strata_bytes
from schemas.access import Access
from schemas.audit import AuditLog
from schemas.documents import document_bytes
from schemas.errors import UsageError
from schemas.report import REPORT_FILE, Report
from schemas.seals import label, publish

PAGE_FILE = "report.html"
TEXT_FILE = "report.md"
STRATA_FILE = "strata.parquet"

LOG_FILE = "audit.jsonl"


def report_files(report: Report) -> dict[str, bytes]:
    """Name and content of each file, in the order of publication; equal reports give equal bytes."""
    return {
        STRATA_FILE: strata_bytes(report),
        TEXT_FILE: markdown_bytes(report),
        PAGE_FILE: html_bytes(report),
        REPORT_FILE: document_bytes(report),
    }


def require_outside(folder: Path, sealed: Iterable[Path]) -> None:
    """A report may not lie inside a sealed folder: it would be a stranger there, and the next check would say so.

    Raises:
        UsageError: ``folder`` is one of ``sealed``, or inside one.
    """
    for other in sealed:
        if folder.resolve().is_relative_to(other.resolve()):
            raise UsageError(
                f"{label(folder)}: inside {label(other)}, which is sealed; name a folder beside it with --out"
            )


def publish_report(report: Report, folder: Path, *, force: bool) -> bool:
    """Put a report's files into a folder, which is made when absent.

    Args:
        report: The report.
        folder: Where to; other files in it are left alone.
        force: Replace another report.

    Returns:
        Whether anything was written; false if the folder already holds this very report.

    Raises:
        UsageError: the folder cannot be made, or holds another report and ``force`` is false.
        TemporaryError: the disk is full or failed.
    """
    files = report_files(report)
    _make_folder(folder)
    different = [name for name, content in files.items() if _differs(folder / name, content)]
    if different and not force:
        raise UsageError(
            f"{label(folder / different[0])}: another report is here; name another folder, or replace it with --force"
        )
    absent = [name for name in files if not (folder / name).exists()]
    for name in files:
        if name in different or name in absent:
            publish(folder / name, files[name], replace=force)
    return bool(different or absent)


def sign_report(report: Report, folder: Path, access: Access) -> None:
    """Sign ``report.json`` beside it, and note who made it in ``audit.jsonl`` there.

    Raises:
        AccessDeniedError: the keyring has no signing key.
    """
    access.sign(folder / REPORT_FILE, document_bytes(report))
    AuditLog(folder / LOG_FILE, access.principal).append("report", report.provenance.run_id, "done")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise UsageError(f"{label(folder)}: no folder can be made here; name another one with --out") from None


def _differs(path: Path, content: bytes) -> bool:
    try:
        return path.exists() and path.read_bytes() != content
    except OSError:
        raise UsageError(f"{label(path)}: cannot be read; name another folder") from None
