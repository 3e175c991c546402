"""Where audit logs lie, and that they still hold the heads which signed documents name.

``CORPUS/audit/corpus.jsonl`` has builds, keys and policies; ``RUN/audit/rank-00003.jsonl`` what a rank read and was
refused. COMMITTED and RUN/COMPLETE are signed with the heads of their time, so a log that was cut or written anew since
is found out; what came later is held by its chain alone until the next build or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from schemas.access import Access
from schemas.audit import AuditLog, head_of
from schemas.audit_chain import require_head
from schemas.audit_events import AuditHead
from schemas.errors import IntegrityError
from schemas.manifests import AUDIT_FOLDER
from schemas.seals import label

CORPUS_LOG = "corpus.jsonl"


def corpus_log(corpus: Path, access: Access) -> AuditLog:
    """A corpus' log, for events of this principal."""
    return AuditLog(corpus / AUDIT_FOLDER / CORPUS_LOG, access.principal)


def rank_log(run: Path, rank: int, access: Access) -> AuditLog:
    """A rank's log, for events of this principal."""
    return AuditLog(run / AUDIT_FOLDER / f"rank-{rank:05d}.jsonl", access.principal)


def heads_of(folder: Path) -> dict[str, AuditHead]:
    """The present head of each log of a corpus or run, by file name."""
    return {path.name: head_of(path) for path in sorted((folder / AUDIT_FOLDER).glob("*.jsonl"))}


def require_heads(folder: Path, heads: Mapping[str, AuditHead]) -> int:
    """Each log still holds its head, and holds together; returns how many logs there are.

    Raises:
        IntegrityError: names the log that is absent, broken, or does not hold its head any more.
    """
    for name, head in heads.items():
        path = folder / AUDIT_FOLDER / name
        if not path.exists():
            raise IntegrityError(f"{label(path)}: no such log, a signed document names its head; restore it")
        require_head(path, head)
    return len(heads)
