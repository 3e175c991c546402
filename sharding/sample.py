"""Synthetic notes for demonstrations and benchmarks: the same seed gives the same record, however many are made.

Record i depends on the seed, i and the number of departments only. Lengths are lognormal with a mean near 600 estimated
tokens (2,400 bytes). A patient has four notes in a row; a fifth of the notes carry forward a passage of the patient's
earlier ones, and one in a hundred repeats a recent note's whole text. So that the ledger has something to show, one
record in 251 has no text, one in 503 an empty one, and one in 401 is the record before it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from sharding.phrases import (
    ABBREVIATIONS,
    AGE_BANDS,
    COMPLAINTS,
    DEPARTMENTS,
    DIAGNOSES,
    DRUGS,
    KIND_OF_SECTION,
    SECTIONS,
    SEXES,
    SITES,
)

# Aimed at before the last sentence of each section and carried-forward passages, which add about a tenth.
MEAN_BYTES = 2_150
SIGMA = 0.7
MIN_BYTES, MAX_BYTES = 80, 60_000
NOTES_PER_PATIENT = 4
HEAD_DRAWS = 4
POOL_SIZE = 1_024
EVERY_NULL, EVERY_EMPTY, EVERY_REPEATED_ROW = 251, 503, 401
COLUMNS = (
    "note_id", "patient_id", "encounter_id", "department", "note_type", "age_band", "sex", "year", "text",
)  # fmt: skip

PROSE, ABBREVIATED, CAPITALS, LIST = range(4)
NOTE_TYPES = tuple(SECTIONS)

_NORMAL = NormalDist()
_NOTE, _PATIENT, _SENTENCES = range(3)


@dataclass(frozen=True, slots=True)
class Note:
    """One synthetic record; ``text`` may be null."""

    note_id: str
    patient_id: str
    encounter_id: str
    department: str
    note_type: str
    age_band: str
    sex: str
    year: str
    text: str | None

    def as_row(self) -> dict[str, str | None]:
        """Column name to value, in the order of ``COLUMNS``."""
        return {name: getattr(self, name) for name in COLUMNS}


class Draws:
    """An endless stream of 64-bit draws, PCG64 seeded by (seed, kind, number); the same on every platform."""

    def __init__(self, seed: int, kind: int, number: int) -> None:
        self.seed = seed
        self._source = np.random.PCG64([seed, kind, number])
        self._ready: list[int] = []

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        if not self._ready:
            self._ready = self._source.random_raw(128).tolist()
        return int(self._ready.pop() % bound)


def sample_notes(num_records: int, num_departments: int, *, seed: int) -> Iterator[Note]:
    """Notes 0 … ``num_records`` - 1."""
    for number in range(num_records):
        yield sample_note(number, num_departments, seed=seed)


def sample_note(number: int, num_departments: int, *, seed: int) -> Note:
    """One note; see the module's docstring for what it depends on."""
    if number % EVERY_REPEATED_ROW == EVERY_REPEATED_ROW - 1:
        return sample_note(number - 1, num_departments, seed=seed)
    draws = Draws(seed, _NOTE, number)
    is_copy, distance, department, year = (draws.below(bound) for bound in (100, 50, num_departments, 7))
    origin = number - 1 - distance % number if number and is_copy == 0 else number
    note_type, text = _body(draws if origin == number else _after_head(seed, origin), origin, seed=seed)
    patient = number // NOTES_PER_PATIENT
    age_band, sex = _person(seed, patient)
    return Note(
        note_id=f"N{number:09d}",
        patient_id=f"P{patient:08d}",
        encounter_id=f"E{patient:08d}{number % NOTES_PER_PATIENT // 2}",
        department=department_name(department),
        note_type=note_type,
        age_band=age_band,
        sex=sex,
        year=str(2018 + year),
        text=_missing(number, text),
    )


def department_name(index: int) -> str:
    """A name for any number of departments."""
    return DEPARTMENTS[index] if index < len(DEPARTMENTS) else f"Clinic {index + 1}"


@lru_cache(maxsize=8)
def _person(seed: int, patient: int) -> tuple[str, str]:
    draws = Draws(seed, _PATIENT, patient)
    return AGE_BANDS[draws.below(len(AGE_BANDS))], SEXES[draws.below(len(SEXES))]


def _missing(number: int, text: str) -> str | None:
    if number % EVERY_NULL == EVERY_NULL // 2:
        return None
    return "" if number % EVERY_EMPTY == EVERY_EMPTY // 2 else text


def _after_head(seed: int, number: int) -> Draws:
    """The draws of another note, from where its text begins."""
    draws = Draws(seed, _NOTE, number)
    for _ in range(HEAD_DRAWS):
        draws.below(1)
    return draws


def _body(draws: Draws, number: int, *, seed: int) -> tuple[str, str]:
    """Type and text of a note, before any is taken away."""
    note_type = NOTE_TYPES[draws.below(len(NOTE_TYPES))]
    style = draws.below(4)
    room = _length(draws)
    names = SECTIONS[note_type]
    parts = []
    for name in names:
        parts.append(_header(name, style))
        parts.append(_passage(draws, name, style, num_bytes=room // len(names) - len(parts[-1])))
    if draws.below(5) == 0:
        parts.insert(2, _carried_forward(seed, number // NOTES_PER_PATIENT, style))
    return note_type, "\n".join(parts)


def _length(draws: Draws) -> int:
    """Lognormal with the stated mean."""
    place = (draws.below(1 << 20) + 0.5) / (1 << 20)
    mean_of_log = float(np.log(MEAN_BYTES)) - SIGMA**2 / 2
    return int(min(max(np.exp(mean_of_log + SIGMA * _NORMAL.inv_cdf(place)), MIN_BYTES), MAX_BYTES))


def _passage(draws: Draws, section: str, style: int, *, num_bytes: int) -> str:
    pool = _sentences(draws.seed, section, style)
    chosen: list[str] = []
    while num_bytes > 0 or not chosen:
        chosen.append(pool[draws.below(POOL_SIZE)])
        num_bytes -= len(chosen[-1]) + 1
    return ("\n" if style == LIST else " ").join(chosen)


@lru_cache(maxsize=256)
def _sentences(seed: int, section: str, style: int) -> list[str]:
    """The sentences that one style has for one section; made once, since filling templates is what takes time."""
    draws = Draws(seed, _SENTENCES, tuple(KIND_OF_SECTION).index(section) * 4 + style)
    templates = _templates(section, style)
    return [_styled(_filled(templates[draws.below(len(templates))], draws), style) for _ in range(POOL_SIZE)]


def _filled(template: str, draws: Draws) -> str:
    return template.format(
        complaint=COMPLAINTS[draws.below(len(COMPLAINTS))],
        diagnosis=DIAGNOSES[draws.below(len(DIAGNOSES))],
        drug=DRUGS[draws.below(len(DRUGS))],
        site=SITES[draws.below(len(SITES))],
        a=1 + draws.below(9),
        b=20 + draws.below(80),
        c=100 + draws.below(100),
    )


def _styled(sentence: str, style: int) -> str:
    if style == CAPITALS:
        return sentence.upper()
    return f"- {sentence}" if style == LIST else sentence


@lru_cache(maxsize=1024)
def _carried_forward(seed: int, patient: int, style: int) -> str:
    """The passage that this patient's notes repeat."""
    text = _passage(Draws(seed, _PATIENT, patient), "Hospital course", style, num_bytes=400)
    return f"{_header('Copied from previous note', style)}\n{text}"


def _templates(section: str, style: int) -> tuple[str, ...]:
    templates = KIND_OF_SECTION[section]
    if style != ABBREVIATED:
        return templates
    for long, short in ABBREVIATIONS:
        templates = tuple(template.replace(long, short) for template in templates)
    return templates


def _header(name: str, style: int) -> str:
    return f"{name}:" if style in (PROSE, LIST) else f"{name.upper()}:"
