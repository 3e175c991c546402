"""One event of an audit log, and the one line of bytes that it is.

An event names opaque ids only, by a closed list of forms: no text, no record's id and no department's name can get in.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Literal, get_args

from pydantic import Field, ValidationError

from schemas.documents import Value
from schemas.errors import UsageError
from schemas.keyrings import PRINCIPAL
from schemas.patterns import SHA256

Action = Literal[
    "build",
    "key.make",
    "key.use",
    "key.grant",
    "key.revoke",
    "key.rotate",
    "read",
    "refuse",
    "score",
    "report",
    "verify",
]
Outcome = Literal["done", "denied", "failed"]

_WORDS = "audit|corpus|keys|ledger|manifest|partials|policy|report|results|scratch|signing|text|views"
_PART = rf"(d-[0-9a-f]{{12}}(-[0-9]{{5}})?|[br]-[0-9a-f]{{16}}|[0-9a-f]{{64}}|{_WORDS})"
# Ids of builds, runs, shards and KEKs, codes of departments, digests, and the words that join them; or a principal.
WHAT = rf"^({_PART}(/{_PART}){{0,3}}|principal/{PRINCIPAL.strip('^$')})$"
MAX_WHAT_CHARACTERS = 120
MAX_LINE_BYTES = 1 << 10
NO_DIGEST = "0" * 64


class AuditEvent(Value):
    """One line of a log.

    Attributes:
        seq: Counts events from 1.
        at: UTC, ISO 8601, to the second.
        who: Principal.
        action: What was done or tried.
        what: Opaque id of what it was done to.
        outcome: How it went.
        previous: Hex SHA-256 of all bytes from the start of the event before on; zeros when nothing stands before.
        torn: True if torn lines stand between the event before and this one; absent otherwise.
    """

    seq: int = Field(ge=1)
    at: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
    who: str = Field(pattern=PRINCIPAL)
    action: Action
    what: str = Field(pattern=WHAT, max_length=MAX_WHAT_CHARACTERS)
    outcome: Outcome
    previous: str = Field(pattern=SHA256)
    torn: Literal[True] | None = None


class AuditHead(Value):
    """Where a log ended: the number of its events, and the SHA-256 of the last one's line (zeros if there is none)."""

    num_events: int = Field(ge=0)
    sha256: str = Field(pattern=SHA256)


NO_EVENTS = AuditHead(num_events=0, sha256=NO_DIGEST)


def event_line(event: AuditEvent) -> bytes:
    """The only bytes of an event."""
    fields = event.model_dump(mode="json", exclude_none=True)
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def parse_event(line: bytes) -> AuditEvent | None:
    """The event whose bytes these are, newline included, if they are one's."""
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        event = AuditEvent.model_validate_json(line)
    except ValidationError:
        return None
    return event if event_line(event) == line else None


def head_at(event: AuditEvent) -> AuditHead:
    """The head of a log that ends with this event."""
    return AuditHead(num_events=event.seq, sha256=hashlib.sha256(event_line(event)).hexdigest())


def require_opaque(who: str, action: str, *, what: str, outcome: str) -> None:
    """These can be an event's, and tell nothing that must stay untold.

    Raises:
        UsageError: they cannot; nothing is quoted, as pydantic would.
    """
    if not re.fullmatch(PRINCIPAL, who):
        raise UsageError("principal: 1 to 64 letters, digits, - or _ make a name; rename it in the policy")
    if action not in get_args(Action) or outcome not in get_args(Outcome):
        raise UsageError("audit log: no action or outcome that it knows; use one of its own")
    if len(what) > MAX_WHAT_CHARACTERS or not re.fullmatch(WHAT, what):
        raise UsageError(
            f"audit log: {len(what)} characters that are no opaque id; "
            "log the id of a build, run, shard, key or principal, or a department's code"
        )
