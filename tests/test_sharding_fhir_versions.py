"""FHIR resources of one id: the later version counts, and who relies on one that is picked blindly is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fhir_exports import adapt, attachment, document, encounter

TIMES = (None, "2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00", "2020-01-02T00:00:00Z")
# The instants of ``TIMES``, by their order.
ORDER = (None, 1, 1, 2)
Version = tuple[int, int | None, str]
VERSIONS = st.lists(
    st.tuples(st.sampled_from(range(4)), st.sampled_from([None, 1, 2, 10]), st.sampled_from(["female", "male"])),
    min_size=1,
    max_size=4,
)


def _patient(number: int | None = None, updated: str | None = None, **fields: Any) -> dict[str, Any]:
    meta = {"versionId": None if number is None else str(number), "lastUpdated": updated}
    return {"resourceType": "Patient", "id": "p", "meta": meta, **fields}


def _is_older(one: Version, other: Version) -> bool:
    """Whether time tells that one version is the older one, or, if time does not tell, its number does."""
    times = (ORDER[one[0]], ORDER[other[0]])
    if None not in times and times[0] != times[1]:
        return times[0] < times[1]  # type: ignore[operator]  # neither is None
    return one[1] is not None and other[1] is not None and one[1] < other[1]


@given(versions=VERSIONS, order=st.randoms(use_true_random=False))
def test_the_later_version_counts_and_a_blind_choice_is_counted(
    tmp_path_factory: pytest.TempPathFactory, versions: list[Version], order: Any
) -> None:
    """Time goes before number; in any order one answer, counted unless all that is not older says the same."""
    resources = [_patient(number, TIMES[time], gender=sex) for time, number, sex in versions]
    order.shuffle(resources)

    (record,), (_, unresolved) = adapt(
        tmp_path_factory.mktemp("versions"), [*resources, document("d", patient="Patient/p")]
    )

    chosen = max(versions, key=lambda item: (ORDER[item[0]] or 0, item[1] or 0, item[2]))
    assert record["feature.sex"] == chosen[2]
    rivals = {item[2] for item in versions if not _is_older(item, chosen)}
    assert unresolved["conflicting_patient"] == (len(rivals) > 1)


ORGANIZATION = {"resourceType": "Organization", "id": "o"}
SUBJECT = {"reference": "Patient/p"}
NAMED = _patient(identifier=[{"system": "mrn", "value": "7"}])


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([_patient(gender="male"), _patient(gender="female")], {"conflicting_patient": 2}),
        ([_patient(birthDate="1950"), _patient(birthDate="1960")], {"conflicting_patient": 2}),
        ([_patient(birthDate="1950"), _patient()], {"conflicting_patient": 2}),
        ([_patient(gender="male"), _patient(gender="Male")], {}),
        ([_patient(gender="unknown"), _patient()], {}),
        ([_patient(name=[{"family": "A"}]), _patient(name=[{"family": "B"}])], {}),
        ([_patient(1, gender="male"), _patient(2, gender="female")], {}),
        ([encounter("e", service={"text": "A"}), encounter("e", service={"text": "B"})], {"conflicting_encounter": 2}),
        ([encounter("e"), encounter("e", subject=SUBJECT)], {"conflicting_encounter": 2}),
        ([encounter("e", period={"start": "2018"}), encounter("e", period={"start": "2019"})], {}),
        (
            [
                NAMED,
                encounter("e", subject={"reference": "Patient?identifier=mrn|7"}),
                encounter("e", subject={"reference": "https://example.org/Patient/p"}),
            ],
            {},
        ),
        ([{**ORGANIZATION, "name": "A"}, {**ORGANIZATION, "name": "B"}], {"conflicting_organization": 2}),
        ([{**ORGANIZATION, "name": "A", "active": True}, {**ORGANIZATION, "name": "A"}], {}),
    ],
)
def test_records_that_rely_on_a_contradiction_are_counted(
    tmp_path: Path, resources: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    """Each record once and by type; only what is used of a resource can contradict, and who refers elsewhere is not."""
    custodian = {"custodian": {"reference": "Organization/o"}}
    notes = [document(name, patient="Patient/p", encounter="e", **custodian) for name in ("one", "two")]
    away = document("away", patient="Patient/other", encounter="other")

    forward = adapt(tmp_path, [*resources, *notes, away])
    backward = adapt(tmp_path, [*resources[::-1], *notes, away])

    assert forward == backward
    found = {name: count for name, count in forward[1][1].items() if name.startswith("conflicting")}
    assert found == expected


def test_a_record_is_counted_once_for_two_organizations(tmp_path: Path) -> None:
    """A custodian and a service provider that both contradict themselves touch one record."""
    organizations = [{**ORGANIZATION, "id": name, "name": f"{name}{end}"} for name in ("o", "q") for end in "12"]
    note = document("d", encounter="e", custodian={"reference": "Organization/o"})

    _, (_, unresolved) = adapt(tmp_path, [*organizations, encounter("e", provider="Organization/q"), note])

    assert unresolved["conflicting_organization"] == 1


@pytest.mark.parametrize(("numbers", "expected"), [((1, 2), "new"), ((2, 10), "new"), ((None, None), None)])
def test_the_later_binary_is_the_text(
    tmp_path: Path, numbers: tuple[int | None, int | None], expected: str | None
) -> None:
    """Version numbers are compared as numbers; without them, two texts are no text."""
    binaries = [
        {**_patient(number), "resourceType": "Binary", **attachment(text)}
        for number, text in zip(numbers, ("old", "new"), strict=True)
    ]
    note = document("d", contents=[{"contentType": "text/plain", "url": "Binary/p"}])

    records, (rejected, _) = adapt(tmp_path, [*binaries[::-1], note])

    assert [record["text"] for record in records] == ([expected] if expected else [])
    assert rejected == (Counter() if expected else Counter(ambiguous_binary=1))
