"""FHIR encounters: one speaks for its own patient only, however references to patients are written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.inspection import unresolved_lines
from sharding.sources.adapter import ENCOUNTER_ENTERED_IN_ERROR, ENCOUNTER_OF_OTHER_PATIENT
from tests.fhir_exports import adapt, attachment, document, encounter, export, report

WAYS = (
    {"reference": "Patient/{}"},
    {"reference": "https://example.org/fhir/Patient/{}"},
    {"reference": "Patient/{}/_history/2"},
    {"reference": "urn:uuid:uuid-of-{}"},
    {"reference": "urn:uuid:uuid-of-{}", "type": "Patient"},
    {"reference": "Patient?identifier=mrn|mrn-of-{}"},
    {"identifier": {"system": "mrn", "value": "mrn-of-{}"}},
)
# Ways that need no Patient resource to be the same as another one.
LITERAL = WAYS[:3]


def _reference(way: dict[str, Any], patient: str) -> dict[str, Any]:
    return {
        key: _reference(value, patient) if isinstance(value, dict) else value.format(patient)
        for key, value in way.items()
    }


def _patient(name: str) -> dict[str, Any]:
    identifiers = [
        {"system": "mrn", "value": f"mrn-of-{name}"},
        {"system": "urn:ietf:rfc:3986", "value": f"urn:uuid:uuid-of-{name}"},
    ]
    made = {"resourceType": "Patient", "id": name, "identifier": identifiers}
    return {**made, "gender": {"a": "female", "b": "male"}[name], "birthDate": "1950-06-01"}


@given(
    of_note=st.sampled_from(WAYS),
    of_encounter=st.sampled_from(WAYS),
    owner=st.sampled_from("ab"),
    told=st.sampled_from(["service", "provider", "class"]),
)
def test_an_encounter_speaks_for_its_own_patient_only(
    tmp_path_factory: pytest.TempPathFactory,
    of_note: dict[str, Any],
    of_encounter: dict[str, Any],
    owner: str,
    told: str,
) -> None:
    """However both name their patient: of another patient it says nothing, it is none of the note's, and is counted."""
    says = {"service": {"service": {"text": "Ward"}}, "provider": {"provider": "Organization/o"}, "class": {}}[told]
    expected = {"service": "Ward", "provider": "Clinic", "class": "ambulatory"}[told]
    resources = [
        document("d", subject=_reference(of_note, "a"), encounter="e"),
        encounter("e", subject=_reference(of_encounter, owner), **says),
        {"resourceType": "Organization", "id": "o", "name": "Clinic"},
        *(_patient("a"), _patient("b")),
    ]

    (record,), (_, unresolved) = adapt(tmp_path_factory.mktemp("encounters"), resources)

    is_own = owner == "a"
    assert (record["department"], record["encounter"]) == ((expected, "e") if is_own else ("UNKNOWN", None))
    assert (record["patient"], record["feature.sex"]) == ("a", "female")
    assert unresolved[ENCOUNTER_OF_OTHER_PATIENT] == unresolved["department"] == (not is_own)


@pytest.mark.parametrize("of_note", LITERAL)
@pytest.mark.parametrize("of_encounter", WAYS)
def test_without_patients_references_are_compared_as_they_are(
    tmp_path: Path, of_note: dict[str, Any], of_encounter: dict[str, Any]
) -> None:
    """Equal ids are one patient's; what is not known to be the same patient's says nothing."""
    resources = [
        document("d", subject=_reference(of_note, "a"), encounter="e"),
        encounter("e", subject=_reference(of_encounter, "a")),
    ]

    (record,), (_, unresolved) = adapt(tmp_path, resources)

    is_same = of_encounter in LITERAL
    assert (record["department"], record["encounter"]) == (("ambulatory", "e") if is_same else ("UNKNOWN", None))
    assert unresolved[ENCOUNTER_OF_OTHER_PATIENT] == (not is_same)


def test_what_a_note_says_itself_stays_when_its_encounter_is_silent(tmp_path: Path) -> None:
    """Practice setting and custodian are the note's own words."""
    resources = [
        encounter("e", service={"text": "Ward"}, subject={"reference": "Patient/b"}),
        {"resourceType": "Organization", "id": "o", "name": "Clinic"},
        document("set", patient="Patient/a", encounter="e", setting={"text": "Setting"}),
        document("kept", patient="Patient/a", encounter="e", custodian={"reference": "Organization/o"}),
    ]

    records, (_, unresolved) = adapt(tmp_path, resources)

    assert [(record["department"], record["encounter"]) for record in records] == [("Clinic", None), ("Setting", None)]
    assert unresolved[ENCOUNTER_OF_OTHER_PATIENT] == 2
    assert unresolved["department"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_note_that_names_nobody_is_about_the_encounters_patient(tmp_path: Path, way: dict[str, Any]) -> None:
    """Patient and case features come from whom the encounter is about, in documents and reports."""
    visit = {"encounter": {"reference": "Encounter/e"}}
    resources = [
        *(document("d", encounter="e"), report("r", [attachment("x")], **visit)),
        *(encounter("e", subject=_reference(way, "b")), _patient("b")),
    ]

    records, (_, unresolved) = adapt(tmp_path, resources)

    assert [(record["patient"], record["encounter"], record["feature.sex"]) for record in records] == [
        ("b", "e", "male"),
        ("b", "e", "male"),
    ]
    assert unresolved["patient"] == unresolved[ENCOUNTER_OF_OTHER_PATIENT] == 0


@pytest.mark.parametrize(
    "subject",
    [
        {"reference": "Group/g"},
        {"reference": "#contained"},
        {"reference": "urn:uuid:x", "type": "Device"},
        {"identifier": {"value": "7"}, "type": "Location"},
    ],
)
def test_a_note_about_something_else_has_no_patient(tmp_path: Path, subject: dict[str, Any]) -> None:
    """The encounter's patient is not taken for a group, a device, a place, or a patient who is not in the export."""
    resources = [
        document("d", subject=subject, encounter="e"),
        encounter("e", subject={"reference": "Patient/b"}),
        _patient("b"),
    ]

    (record,), (_, unresolved) = adapt(tmp_path, resources)

    assert (record["patient"], record["feature.sex"], record["department"]) == (None, None, "ambulatory")
    assert unresolved["patient"] == 1


@pytest.mark.parametrize("subject", [None, {}, {"display": "Jane"}, {"reference": "Group/g"}, [1]])
def test_an_encounter_that_names_no_patient_answers_for_anyone(tmp_path: Path, subject: Any) -> None:
    """Nothing says that it is another patient's."""
    resources = [document("d", patient="Patient/a", encounter="e"), encounter("e", subject=subject), _patient("a")]

    (record,), (_, unresolved) = adapt(tmp_path, resources)

    assert (record["department"], record["encounter"], record["patient"]) == ("ambulatory", "e", "a")
    assert unresolved[ENCOUNTER_OF_OTHER_PATIENT] == 0


WITHDRAWN = {"status": "entered-in-error"}


@given(number=st.integers(0, 4), version=st.sampled_from([4, 5]), owner=st.sampled_from(["p0", "p1", None]))
def test_an_encounter_that_was_entered_in_error_says_nothing(
    tmp_path_factory: pytest.TempPathFactory, number: int, version: int, owner: str | None
) -> None:
    """The records are those of an export without it, but in no encounter; each is counted once, for that alone."""
    resources = export(num_patients=2, num_documents=10, version=version)
    subject = {"subject": {"reference": f"Patient/{owner}"}} if owner else {}
    gone = [{**item, **WITHDRAWN, **subject} if item["id"] == f"e{number}" else item for item in resources]
    without = [item for item in resources if item["id"] != f"e{number}"]

    records, (_, unresolved) = adapt(tmp_path_factory.mktemp("gone"), gone)

    expected, (_, missing) = adapt(tmp_path_factory.mktemp("without"), without)
    touched = {f"DocumentReference/d{number}", f"DocumentReference/d{number + 5}"}
    assert records == [{**row, "encounter": None} if row["id"] in touched else row for row in expected]
    assert unresolved == missing + Counter({ENCOUNTER_ENTERED_IN_ERROR: 2})


def test_a_note_that_names_nobody_is_not_of_the_patient_of_an_encounter_entered_in_error(tmp_path: Path) -> None:
    """Nothing says whom it is about, which is counted."""
    resources = [document("d", encounter="e"), encounter("e", subject={"reference": "Patient/a"}, **WITHDRAWN)]

    (record,), (_, unresolved) = adapt(tmp_path, [*resources, _patient("a")])

    assert (record["patient"], record["feature.sex"]) == (None, None)
    assert (unresolved["patient"], unresolved[ENCOUNTER_ENTERED_IN_ERROR]) == (1, 1)


@pytest.mark.parametrize(
    ("numbers", "department", "conflicts"), [((1, 2), "UNKNOWN", 0), ((2, 1), "Ward", 0), ((1, 1), "UNKNOWN", 1)]
)
def test_the_last_version_tells_whether_an_encounter_was_entered_in_error(
    tmp_path: Path, numbers: tuple[int, int], department: str, conflicts: int
) -> None:
    """A later one withdraws it, or lets it stand again; where nobody knows which is the last, it is silent."""
    metas = [{"meta": {"versionId": str(number)}} for number in numbers]
    versions = [encounter("e", service={"text": "Ward"}, **metas[0]), encounter("e", **metas[1], **WITHDRAWN)]
    notes = [document("d", encounter="e")]

    found = [adapt(tmp_path, [*resources, *notes]) for resources in (versions, versions[::-1])]

    (record,), (_, unresolved) = found[0]
    assert found[0] == found[1]
    assert (record["department"], record["encounter"]) == (department, None if department == "UNKNOWN" else "e")
    assert unresolved[ENCOUNTER_ENTERED_IN_ERROR] == (department == "UNKNOWN")
    assert unresolved["conflicting_encounter"] == conflicts


@pytest.mark.parametrize("withdrawn", [{"a"}, {"b"}, {"a", "b"}, set()])
def test_an_identifier_is_that_of_the_encounter_that_stands(tmp_path: Path, withdrawn: set[str]) -> None:
    """A visit that was entered anew under its own number; of two that stand, or of two that do not, it is none's."""
    number = {"identifier": [{"system": "visits", "value": "7"}]}
    visits = [encounter(name, **number, **(WITHDRAWN if name in withdrawn else {})) for name in "ab"]
    context = {"encounter": [{"identifier": number["identifier"][0]}]}

    (record,), _ = adapt(tmp_path, [*visits, document("d", context=context)])

    (stands, *others) = sorted({"a", "b"} - withdrawn) or [None]
    assert record["encounter"] == (None if others else stands)


def test_what_is_wrong_is_not_called_unknown() -> None:
    """``inspect`` and ``plan`` show what is missing by its name, and what side files told wrong by its own."""
    wrong = {ENCOUNTER_OF_OTHER_PATIENT: 3, ENCOUNTER_ENTERED_IN_ERROR: 4}
    unresolved = {"department": 1, "conflicting_patient": 2, **wrong}

    lines = list(unresolved_lines(unresolved))

    assert [line.split("  ")[0] for line in lines] == [
        "conflicting_patient",
        "department unknown",
        "encounter_entered_in_error",
        "encounter_of_other_patient",
    ]
