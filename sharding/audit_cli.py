"""``python -m sharding audit``: whether audit logs are what was written to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schemas.console import NamedPath, emit, output_options

if TYPE_CHECKING:
    from schemas.audit_chain import AuditChain
    from schemas.audit_events import AuditHead

_HEAD = re.compile(r"(?P<num_events>[0-9]{1,18}):(?P<sha256>[0-9a-f]{64})", re.ASCII)


class Head(click.ParamType["AuditHead"]):
    """NUM:SHA256, as ``audit verify`` and signed manifests have it."""

    name = "NUM:SHA256"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> AuditHead:
        """The head.

        Raises:
            click.BadParameter: it has another form.
        """
        from schemas.audit_events import AuditHead

        found = _HEAD.fullmatch(str(value))
        if not found:
            self.fail("write the number of events, a colon and 64 lower-case hex digits", param, ctx)
        return AuditHead(num_events=int(found["num_events"]), sha256=found["sha256"])


@click.group()
def audit() -> None:
    """Check audit logs."""


@audit.command()
@click.argument("path", metavar="LOG_OR_FOLDER", type=NamedPath(path_type=Path))
@click.option("--head", type=Head(), help="The log must still hold this event, which was its last one once.")
@output_options
def verify(path: Path, *, head: AuditHead | None, as_json: bool, verbose: int) -> None:
    """Check that each event follows from all before it; FOLDER stands for every FOLDER/audit/**/*.jsonl.

    A chain that holds may still have been cut at its end or written anew by whoever can write the file: a head that was
    kept elsewhere, or signed, tells.
    """
    from schemas.audit_chain import read_chain
    from schemas.audit_events import NO_EVENTS
    from schemas.logs import setup_logging

    setup_logging(verbose)
    logs = _logs_of(path)
    if head and len(logs) > 1:
        raise click.UsageError(f"--head is of one log, {len(logs)} are there; name one")
    chains = {name: read_chain(log, head or NO_EVENTS) for name, log in logs.items()}
    described = [_described(name, chain) for name, chain in chains.items()]
    lines = [line for item in described for line in _lines_of(item)]
    emit({"status": "verified", "logs": described}, lines, as_json=as_json)


def _logs_of(path: Path) -> dict[str, Path]:
    """Logs by the names that the result has for them."""
    from schemas.errors import IntegrityError
    from schemas.manifests import AUDIT_FOLDER
    from schemas.seals import label

    if not path.is_dir():
        return {path.name: path}
    found = {log.relative_to(path).as_posix(): log for log in sorted((path / AUDIT_FOLDER).rglob("*.jsonl"))}
    if not found:
        raise IntegrityError(f"{label(path)}: no {AUDIT_FOLDER}/*.jsonl there; restore the audit logs, or name one")
    return found


def _described(name: str, chain: AuditChain) -> dict[str, Any]:
    outcomes: dict[str, dict[str, int]] = {}
    for (action, outcome), times in sorted(chain.outcomes.items()):
        outcomes.setdefault(action, {})[outcome] = times
    return {
        "log": name,
        "num_events": chain.head.num_events,
        "head": f"{chain.head.num_events}:{chain.head.sha256}",
        "num_torn": chain.num_torn,
        "outcomes": outcomes,
    }


def _lines_of(described: dict[str, Any]) -> list[str]:
    torn = f", {described['num_torn']:,} torn lines of killed writers" if described["num_torn"] else ""
    counts = [
        f"  {action}: {', '.join(f'{times:,} {outcome}' for outcome, times in outcomes.items())}"
        for action, outcomes in described["outcomes"].items()
    ]
    return [f"{described['log']}: {described['num_events']:,} events{torn}", *counts, f"  head {described['head']}"]
