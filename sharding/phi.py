"""Safe Harbor identifiers that have a form (45 CFR 164.514(b)(2)(i)), counted by kind and never shown.

The patterns are those of presidio-analyzer, an optional extra, without any language model, and a few of its form for
medical record numbers, names after a title and dates in words. They are English and American. Not covered, since no
pattern finds them: bare names, geographic subdivisions, ages over 89, licences, vehicles, biometrics and photographs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from schemas.errors import UsageError

# Loggers that could tell of a text, or of patterns, at some level.
LOGGERS = ("presidio-analyzer", "presidio_analyzer", "decision_process")
# Below these scores presidio takes a match for very weak, such as any nine digits for an SSN and 5/10 for a date.
LEAST_SCORES = {"date": 0.2, "phone": 0.4}
LEAST_SCORE = 0.5

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)[0-9]{2}"
DATE_IN_WORDS = rf"\b(?:{_MONTH} {_DAY},? {_YEAR}|{_DAY} (?:of )?{_MONTH},? {_YEAR}|{_MONTH},? {_YEAR})\b"
LABELLED_NUMBER = (
    r"\b(?i:MRN|MR\s?#|med(?:ical)?\.? rec(?:ord)?\.?(?: (?:no|number|num)\b)?\.?)\s{0,3}[#:]?\s{0,3}"
    r"(?=[A-Z0-9-]{0,15}[0-9])[A-Z0-9][A-Z0-9-]{3,15}\b"
)
TITLED_NAME = r"\b(?:Dr|Mr|Mrs|Ms|Prof)\b\.?[ ]{1,2}(?:[A-Z]\.[ ]?){0,2}[A-Z][\p{L}'\u2019-]+"


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in some texts, by kind.

    Attributes:
        findings: Stretches of text; those of one kind that overlap are one.
        records: Texts with at least one.
        num_any: Texts with at least one of any kind.
    """

    findings: Counter[str]
    records: Counter[str]
    num_any: int


def count_identifiers(texts: Iterable[str]) -> Found:
    """Count what has the form of an identifier.

    Raises:
        UsageError: presidio-analyzer is not installed.
    """
    recognizers = _recognizers()
    findings: Counter[str] = Counter()
    records: Counter[str] = Counter()
    num_any = 0
    for text in texts:
        found = Counter(dict(_kinds_of(text, recognizers)))
        findings.update(found)
        records.update(found.keys())
        num_any += bool(found)
    return Found(findings, records, num_any)


def require_presidio() -> None:
    """Tell before the inputs are read if the library is absent.

    Raises:
        UsageError: presidio-analyzer is not installed.
    """
    if importlib.util.find_spec("presidio_analyzer") is None:
        raise _absent()


def scanner_version() -> str:
    """Name and version of the library, on which the counts depend."""
    return f"presidio-analyzer {importlib.metadata.version('presidio-analyzer')}"


def _kinds_of(text: str, recognizers: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, int]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for kind, recognizer in recognizers:
        least = LEAST_SCORES.get(kind, LEAST_SCORE)
        found = recognizer.analyze(text, recognizer.supported_entities, None)
        spans.setdefault(kind, []).extend((match.start, match.end) for match in found if match.score >= least)
    mail = spans["email"]
    # The domain of an address is no second finding.
    spans["url"] = [(a, b) for a, b in spans["url"] if not any(a < stop and start < b for start, stop in mail)]
    return ((kind, _num_apart(found)) for kind, found in spans.items() if found)


def _num_apart(spans: Iterable[tuple[int, int]]) -> int:
    count, reached = 0, 0
    for start, stop in sorted(spans):
        count += start >= reached
        reached = max(reached, stop)
    return count


@cache
def _recognizers() -> tuple[tuple[str, Any], ...]:
    """Kind and recogniser, made once in a process."""
    for name in LOGGERS:
        logging.getLogger(name).disabled = True
    try:
        presidio = importlib.import_module("presidio_analyzer")
        ready = importlib.import_module("presidio_analyzer.predefined_recognizers")
    except ImportError:
        raise _absent() from None

    def own(name: str, patterns: Sequence[Any], flags: int | None = None) -> Any:
        options = {} if flags is None else {"global_regex_flags": flags}
        return presidio.PatternRecognizer(supported_entity=name.upper(), patterns=list(patterns), **options)

    def pattern(form: str) -> list[Any]:
        return [presidio.Pattern("own", form, LEAST_SCORE)]

    return (
        ("phone", ready.PhoneRecognizer(supported_regions=("US",))),
        # Its patterns alone: its check of domains asks the network for a list of them.
        ("email", own("email", ready.EmailRecognizer.PATTERNS)),
        ("ssn", ready.UsSsnRecognizer()),
        ("mrn", own("mrn", pattern(LABELLED_NUMBER), 0)),
        ("date", ready.DateRecognizer()),
        ("date", own("date", pattern(DATE_IN_WORDS))),
        ("url", ready.UrlRecognizer()),
        ("ip", ready.IpRecognizer()),
        ("name_after_title", own("name_after_title", pattern(TITLED_NAME), 0)),
        ("account", ready.CreditCardRecognizer()),
        ("device", ready.MacAddressRecognizer()),
    )


def _absent() -> UsageError:
    return UsageError("--phi-scan: presidio-analyzer is not installed; pip install exactppl[phi]")
