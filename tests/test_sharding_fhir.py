"""FHIR exports: what is a note, what its text is, and where department, patient and case features come from."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DataError
from sharding.sources.adapter import MIXED, NOTES
from sharding.sources.fhir import BINARIES, RESOURCES
from sharding.sources.fhir_attachments import text_of
from sharding.sources.fhir_references import reference_key
from sharding.sources.fhir_texts import parts
from sharding.sources.source import Header
from tests.fhir_exports import (
    FHIR,
    LINES,
    adapt,
    attachment,
    document,
    encounter,
    export,
    read_resources,
    report,
    write_lines,
)

RTF = {"contentType": "application/rtf", "data": "e1xydGY="}


@given(
    seed=st.integers(0, 2**32), block_bytes=st.sampled_from([1, 300, 1_000, 1 << 20]), version=st.sampled_from([4, 5])
)
def test_order_and_blocks_do_not_change_a_record(
    tmp_path_factory: pytest.TempPathFactory, seed: int, block_bytes: int, version: int
) -> None:
    """Resources of all types in one file give the same records in any order and however the file is cut."""
    resources = export(num_patients=4, num_documents=12, version=version)
    shuffled = random.Random(seed).sample(resources, len(resources))

    whole = adapt(tmp_path_factory.mktemp("whole"), resources)
    moved = adapt(tmp_path_factory.mktemp("moved"), shuffled, block_bytes=block_bytes)

    assert moved == whole
    assert len(whole[0]) == 12
    assert whole[1] == (Counter(), Counter())


@given(owners=st.lists(st.integers(0, 3), min_size=36, max_size=36))
def test_files_in_which_resources_lie_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, owners: list[int]
) -> None:
    """Notes and side resources spread over files in any way give the same records."""
    resources = export(num_patients=6, num_documents=20, version=5)
    folder = tmp_path_factory.mktemp("split")
    parts = [[item for item, owner in zip(resources, owners, strict=True) if owner == number] for number in range(4)]
    paths = [write_lines(folder / f"{number}.ndjson", part) for number, part in enumerate(parts) if part]

    lookups = FHIR.lookups({MIXED: pa.concat_tables([read_resources(path, MIXED)[0] for path in paths])})
    found = [FHIR.records(read_resources(path, NOTES)[0], lookups) for path in paths]

    records = [row for adapted in found for row in adapted.table.to_pylist()]
    assert sorted(records, key=lambda row: str(row["id"])) == adapt(folder, resources)[0]
    assert not sum((adapted.rejected + adapted.unresolved for adapted in found), Counter())


def test_releases_4_and_5_say_the_same(tmp_path: Path) -> None:
    """An export in the forms of R4 and of R5 gives equal records."""
    four, five = (adapt(tmp_path, export(num_patients=5, num_documents=20, version=version)) for version in (4, 5))

    assert four == five
    assert {record["department"] for record in four[0]} == {"Ward 0", "Ward 1", "Service 2", "Clinic 3", "class-4"}


@given(text=st.text(alphabet=st.characters(exclude_categories=("Cs",))), charset=st.sampled_from(["utf-8", "utf-16"]))
def test_a_text_comes_back_as_it_was_written(text: str, charset: str) -> None:
    """Base64 of a text in its charset gives the text, but for a byte order mark."""
    data = base64.b64encode(text.encode(charset)).decode()

    found = text_of(data, f"text/plain; charset={charset}")

    assert found == (text.removeprefix("\ufeff"), None)


@given(
    data=st.one_of(st.text(max_size=20), st.binary(max_size=20).map(lambda raw: base64.b64encode(raw).decode())),
    content_type=st.one_of(
        st.text(max_size=30),
        st.text(max_size=12).map("text/plain; charset={}".format),
        st.just("text/plain;charset*=x"),
    ),
)
def test_no_attachment_ends_a_build(data: str, content_type: str) -> None:
    """Whatever stands where base64 and a media type should, there is a text or a reason, never both."""
    text, reason = text_of(data, content_type)

    assert (text is None) == (reason in {"unsupported_media", "malformed", "undecodable"})


@pytest.mark.parametrize(
    ("data", "content_type", "expected"),
    [
        ("5ZKz5Ze9", "text/plain", ("咳嗽", None)),
        ("5ZKz\n5Ze9", "text/plain", ("咳嗽", None)),
        ("v8jL1A==", 'TEXT/PLAIN;Charset="gb18030"', ("咳嗽", None)),
        ("6Q==", "text/plain; format=flowed; charset=iso-8859-1", ("é", None)),
        ("PGI+eDwvYj4=", "text/html", ("<b>x</b>", None)),
        ("PGI+eDwvYj4=", "application/xhtml+xml", ("<b>x</b>", None)),
        ("PGI+eDwvYj4=", "text/xml", ("<b>x</b>", None)),
        ("", "text/plain", ("", None)),
        ("6Q==", "text/plain", (None, "undecodable")),
        ("6Q==", "text/plain; charset=klingon", (None, "undecodable")),
        ("6Q==", "text/plain; charset=base64", (None, "undecodable")),
        ("XHUwMDQx", "text/plain; charset=raw_unicode_escape", (None, "undecodable")),
        ("6Q=", "text/plain", (None, "malformed")),
        ("6Q==6Q==", "text/plain", (None, "malformed")),
        ("6_-Q", "text/plain", (None, "malformed")),
        ("é", "text/plain", (None, "malformed")),
        ("JVBERi0=", "application/pdf", (None, "unsupported_media")),
        ("e1xydGY=", "text/rtf", (None, "unsupported_media")),
        ("eA==", None, (None, "unsupported_media")),
    ],
)
def test_an_attachment_is_text_or_says_why_not(data: str, content_type: str | None, expected: tuple[Any, Any]) -> None:
    """Strict base64, a media type that is text, a charset that is known and fits."""
    assert text_of(data, content_type) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"reference": "Patient/a-1.b"}, "Patient/a-1.b"),
        ({"reference": "Patient/1/_history/3"}, "Patient/1"),
        ({"reference": "https://example.org/fhir/Patient/1"}, "Patient/1"),
        ({"reference": "urn:uuid:78eb1ea7"}, "Patient/78eb1ea7"),
        ({"reference": "urn:uuid:78eb1ea7", "type": "Group"}, None),
        ({"reference": "Patient?identifier=urn:x|7"}, "Patient?urn:x|7"),
        ({"reference": "Patient?active=true&identifier=http%3A%2F%2Fx|7"}, "Patient?http://x|7"),
        ({"reference": "Patient?identifier=7"}, "Patient?7"),
        ({"identifier": {"system": "urn:x", "value": "7"}}, "Patient?urn:x|7"),
        ({"identifier": {"system": "urn:x", "value": "7"}, "type": "Device"}, None),
        ({"reference": "#contained"}, None),
        ({"reference": "Group/1"}, None),
        ({"reference": 7}, None),
        ({"display": "Jane"}, None),
        ({}, None),
    ],
)
def test_a_reference_has_one_key(reference: dict[str, Any], expected: str | None) -> None:
    """Relative, absolute, by UUID, conditional and by identifier; other types and contained resources are none."""
    assert reference_key(reference, "Patient") == expected


def test_departments_come_from_the_first_that_says_one(tmp_path: Path) -> None:
    """Practice setting, the encounter's service, the custodian, the service provider, the class, then UNKNOWN."""
    sides = [
        {"resourceType": "Organization", "id": "o1", "name": "Org 1", "identifier": [{"system": "s", "value": "v"}]},
        {"resourceType": "Organization", "id": "o2", "name": "Org 2"},
        encounter("full", service={"text": "Service"}, provider="Organization/o2"),
        encounter("provided", provider="Organization/o2"),
        encounter("bare"),
    ]
    custodian = {"custodian": {"reference": "Organization?identifier=s|v"}}
    notes = [
        document("a", encounter="full", setting={"coding": [{"code": "x"}, {"display": "Setting"}]}, **custodian),
        document("b", encounter="full", **custodian),
        document("c", encounter="provided", **custodian),
        document("d", encounter="provided"),
        document("e", encounter="bare"),
        document("f", encounter="absent"),
    ]

    records, (_, unresolved) = adapt(tmp_path, [*sides, *notes])

    departments = [record["department"] for record in records]
    assert departments == ["Setting", "Service", "Org 1", "Org 2", "ambulatory", "UNKNOWN"]
    assert unresolved["department"] == 1


def test_patients_and_encounters_are_found_by_whatever_names_them(tmp_path: Path) -> None:
    """Id, absolute URL, UUID and identifier lead to one patient; an identifier of two patients leads to none."""
    patients = [
        {
            "resourceType": "Patient",
            "id": "p1",
            "gender": "female",
            "birthDate": "1950-06-01",
            "identifier": [{"system": "mrn", "value": "7"}, {"system": "urn:ietf:rfc:3986", "value": "urn:uuid:u-1"}],
        },
        *({"resourceType": "Patient", "id": name, "identifier": [{"value": "twice"}]} for name in ("p2", "p3")),
    ]
    ways = [
        "Patient/p1",
        "http://host/fhir/Patient/p1",
        "urn:uuid:u-1",
        "Patient?identifier=mrn|7",
        "Patient?identifier=7",
    ]
    notes = [document(f"d{index}", patient=way) for index, way in enumerate(ways)]
    lost = [document("x", patient="Patient?identifier=twice"), document("y", patient="Patient/gone")]

    records, (_, unresolved) = adapt(tmp_path, [*notes, *patients, *lost])

    assert [record["patient"] for record in records] == ["p1"] * 5 + [None, "gone"]
    assert [record["feature.age_band"] for record in records] == ["60-69"] * 5 + [None, None]
    assert [record["feature.sex"] for record in records] == ["female"] * 5 + [None, None]
    assert unresolved["patient"] == 1
    assert unresolved["sex"] == unresolved["age_band"] == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize(
    ("formats", "text"),
    [
        ((attachment("html", "text/html"), attachment("plain"), RTF), "plain"),
        ((attachment("<n/>", "application/xml"), attachment("html", "TEXT/HTML; charset=utf-8"), RTF), "html"),
        ((attachment("<n/>", "text/xml"), {"contentType": "text/plain", "data": "!"}, RTF), "<n/>"),
        ((attachment("html", "text/html"), attachment(""), RTF), "html"),
        ((attachment("html", "text/html"), {"contentType": "text/plain", "url": "Binary/gone"}, RTF), "html"),
    ],
)
def test_formats_of_a_document_are_one_record(
    tmp_path: Path, formats: Sequence[dict[str, Any]], text: str, order: Sequence[int]
) -> None:
    """Plain text, else HTML, else XML that can be read is the text, in any order; the id never tells which it was."""
    moved = [formats[index] for index in order]

    records, (rejected, _) = adapt(tmp_path, [document("d", contents=moved), report("r", moved)])

    assert {record["id"]: record["text"] for record in records} == {
        "DiagnosticReport/r": text,
        "DocumentReference/d": text,
    }
    assert rejected == {"other_format": 4}


def test_every_document_is_a_record_or_a_reject(tmp_path: Path) -> None:
    """Texts by url come from binaries; each document has one reason, and its other formats are counted apart."""
    of_type = {"contentType": "text/plain"}
    contents: dict[str, list[Any]] = {
        "url": [{**of_type, "url": "Binary/b1"}],
        "far": [{**of_type, "url": "https://example.org/secret.txt"}],
        "nothing": [of_type],
        "pdf": [{"contentType": "application/pdf", "data": "eA=="}],
        "base64": [{**of_type, "data": "!"}, RTF],
        "number": [{**of_type, "data": 7}],
        "gone": [],
    }
    binary = {"resourceType": "Binary", "id": "b1", "contentType": "text/plain; charset=latin-1", "data": "6Q=="}
    wrong = [document("e1", status="entered-in-error"), document("e2", docStatus="entered-in-error")]
    wrong_formats = report("e3", [RTF, RTF, RTF], status="entered-in-error")
    notes = [document(name, content=[{"attachment": item} for item in items]) for name, items in contents.items()]

    records, (rejected, _) = adapt(tmp_path, [*notes, report("bare", []), *wrong, wrong_formats, binary])

    assert {record["id"]: record["text"] for record in records} == {"DocumentReference/url": "é"}
    assert rejected == {
        "no_content": 3,
        "unsupported_media": 1,
        "malformed": 2,
        "entered_in_error": 3,
        "no_text": 1,
        "other_format": 3,
    }


@given(
    formats=st.lists(
        st.lists(
            st.sampled_from([RTF, attachment("x"), attachment("y", "text/html"), {"data": "!"}, 7]),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=6,
    ),
    block_bytes=st.sampled_from([1, 400, 1 << 20]),
)
def test_attachments_are_conserved(
    tmp_path_factory: pytest.TempPathFactory, formats: list[list[Any]], block_bytes: int
) -> None:
    """Records and rejects are as many as the attachments, and all but ``other_format`` as many as the documents."""
    notes = [document(str(number), contents=items) for number, items in enumerate(formats)]

    records, (rejected, _) = adapt(tmp_path_factory.mktemp("formats"), notes, block_bytes=block_bytes)

    assert len(records) + rejected.total() == sum(map(len, formats))
    assert len(records) + rejected.total() - rejected["other_format"] == len(formats)


@given(
    sizes=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=8),
    max_bytes=st.integers(1, 600),
)
def test_parts_refer_to_so_much_and_keep_documents_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], max_bytes: int
) -> None:
    """Parts are the rows, in order; each refers to at most so many bytes of binaries or is one document."""
    path = tmp_path_factory.mktemp("parts") / "all.ndjson"
    urls = [[f"Binary/{number}-{index}" for index in range(len(each))] for number, each in enumerate(sizes)]
    binaries = [
        {"resourceType": "Binary", "id": f"{number}-{index}", "contentType": "text/plain", "data": "QUJD" * size}
        for number, each in enumerate(sizes)
        for index, size in enumerate(each)
        if size
    ]
    notes = [
        document(str(number), contents=[{"contentType": "text/plain", "url": url} for url in each])
        for number, each in enumerate(urls)
    ]
    write_lines(path, [*notes, *binaries])
    lookups = FHIR.lookups({MIXED: read_resources(path, MIXED)[0]})
    num_bytes = {f"Binary/{item['id']}": len(json.dumps(item).encode()) for item in binaries}
    rows, _ = read_resources(path, NOTES)

    found = list(parts(rows, lookups, max_bytes=max_bytes))

    assert pa.concat_tables(found) == rows
    of_parts = [set(part.column("document").to_pylist()) for part in found]
    assert len(set().union(*of_parts)) == sum(map(len, of_parts))
    referred = [sum(num_bytes.get(url, 0) for url in part.column("url").to_pylist()) for part in found]
    assert all(size <= max_bytes or len(each) == 1 for size, each in zip(referred, of_parts, strict=True))


def test_a_binary_may_stand_anywhere(tmp_path: Path) -> None:
    """Also in a folder whose name is not UTF-8, or has what URLs write otherwise."""
    note = document("d", contents=[{"contentType": "text/plain", "url": "Binary/b"}])
    binary = {"resourceType": "Binary", "id": "b", **attachment("text")}
    folders = [tmp_path / name for name in ("caf\udce9", "100%20 + ?#", "\u6587\u4ef6")]

    for folder in folders:
        folder.mkdir()
        (record,), (rejected, _) = adapt(folder, [note, binary])

        assert record["text"] == "text"
        assert not rejected


@pytest.mark.parametrize(
    ("own", "held", "text"),
    [
        ("text/plain; charset=latin-1", "text/plain", "é"),
        ("text/plain; charset=latin-1", None, "é"),
        ("application/pdf; charset=latin-1", "text/plain", "é"),
        ("text/plain; charset=utf-8", "text/plain; charset=latin-1", "é"),
        (None, "text/plain; charset=latin-1", "é"),
        ("text/plain", "text/plain", None),
    ],
)
def test_what_a_binary_does_not_say_its_attachment_says(
    tmp_path: Path, own: str | None, held: str | None, text: str | None
) -> None:
    """Media type and charset are the binary's, each else the attachment's."""
    binary = {"resourceType": "Binary", "id": "b", "contentType": held, "data": "6Q=="}
    note = document("d", contents=[{"contentType": own, "url": "Binary/b"}])

    records, (rejected, _) = adapt(tmp_path, [note, binary])

    assert [record["text"] for record in records] == ([text] if text else [])
    assert rejected == ({} if text else {"undecodable": 1})


def test_a_binary_of_two_texts_is_no_text(tmp_path: Path) -> None:
    """Of one id and one time but for what they say, none is chosen; a later one, or an equal one, is read."""

    def binary(name: str, text: str, updated: str | None = None) -> dict[str, Any]:
        meta = {"meta": {"lastUpdated": updated}} if updated else {}
        return {"resourceType": "Binary", "id": name, **attachment(text), **meta}

    early, late = "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"
    binaries = [
        *(binary("untimed", "one"), binary("untimed", "two")),
        *(binary("timed", "one", early), binary("timed", "two", "2020-01-01T01:00:00+01:00")),
        *(binary("equal", "same"), binary("equal", "same")),
        *(binary("later", "old", early), binary("later", "older", early), binary("later", "new", late)),
    ]
    url = {"contentType": "text/plain"}
    notes = [document(name, contents=[{**url, "url": f"Binary/{name}"}]) for name in ("untimed", "timed", "equal")]
    notes.append(document("later", contents=[{**url, "url": "Binary/later"}]))
    notes.append(document("other", contents=[{**url, "url": "Binary/timed"}, attachment("html", "text/html")]))

    forward, backward = (adapt(tmp_path, [*order, *notes]) for order in (binaries, binaries[::-1]))

    assert forward == backward
    assert {record["id"]: record["text"] for record in forward[0]} == {
        "DocumentReference/equal": "same",
        "DocumentReference/later": "new",
        "DocumentReference/other": "html",
    }
    assert forward[1][0] == {"ambiguous_binary": 2, "other_format": 1}


@given(order=st.permutations(range(4)), updated=st.sampled_from([None, "2020-01-01"]))
def test_versions_that_are_alike_in_time_give_one_answer(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], updated: str | None
) -> None:
    """The cells themselves decide, and what is said goes before what is not."""
    said: list[dict[str, Any]] = [
        {},
        {"birthDate": "1950"},
        {"gender": "male"},
        {"birthDate": "1950", "gender": "female"},
    ]
    patients = [{"resourceType": "Patient", "id": "p", "meta": {"lastUpdated": updated}, **item} for item in said]
    resources = [*(patients[index] for index in order), document("d", patient="Patient/p")]

    records, _ = adapt(tmp_path_factory.mktemp("versions"), resources)

    assert (records[0]["feature.age_band"], records[0]["feature.sex"]) == ("60-69", "female")


@pytest.mark.parametrize(
    ("fields", "creation", "expected"),
    [
        ({"context": {"period": {"start": "2011"}}}, "2012", "2011"),
        ({"period": {"start": "2011"}}, "2012", "2011"),
        ({}, "2012", "2012"),
        ({}, None, "2013"),
        ({"date": None}, None, None),
    ],
)
def test_a_note_is_of_the_time_of_care(
    tmp_path: Path, fields: dict[str, Any], creation: str | None, expected: str | None
) -> None:
    """The beginning of what it is about, else when it was written, else when the reference to it was made."""
    contents = [{**attachment("x"), **({"creation": creation} if creation else {})}]

    records, _ = adapt(tmp_path, [document("d", contents=contents, **{"date": "2013", **fields})])

    assert records[0]["time"] == records[0]["feature.year"] == expected


def test_an_organization_that_made_a_report_is_its_department(tmp_path: Path) -> None:
    """Among performers of any type, one that says that it is an organization first."""
    organizations = [{"resourceType": "Organization", "id": name, "name": f"Lab {name}"} for name in ("o1", "o2")]
    performers = [{"reference": "Practitioner/p"}, {"reference": "urn:uuid:p"}, {"reference": "Organization/o1"}]
    reports = [
        report("a", [attachment("x")], performer=performers),
        report("b", [attachment("x")], performer=[{"reference": "urn:uuid:o2", "type": "Organization"}]),
        report("c", [attachment("x")], performer=performers[:1]),
    ]

    records, _ = adapt(tmp_path, [*organizations, *reports])

    assert [record["department"] for record in records] == ["Lab o1", "Lab o2", "UNKNOWN"]


def test_lines_that_are_no_notes_are_told_apart(tmp_path: Path) -> None:
    """Other resources are no records; what is no resource, no JSON or no UTF-8 is rejected by reason."""
    path = write_lines(
        tmp_path / "all.ndjson",
        [
            document("d"),
            {"resourceType": "Observation", "id": "o"},
            {"resourceType": "Docment"},
            {"eventId": "kickoff"},
        ],
    )
    lines = [
        b'{"id": "late", "resourceType": "Observation"}',
        b'{"resourceType": "DocumentReference", "id": "\\ud83d", "content": [{"attachment": {"data": ""}}]}',
        b'{"resourceType": "DocumentReference", "id": "s", "content": [{"attachment": {"data": "\\ud83d"}}]}',
        b'{"resourceType": "DocumentReference", "id": "x", "id": "y"}',
        b'{"resourceType": "DocumentReference", "id": "\xff"}',
        b"[]",
        b"  ",
    ]
    path.write_bytes(path.read_bytes() + b"\n".join(lines))

    rows, rejected = read_resources(path, NOTES)

    assert rows.column("id").to_pylist() == ["DocumentReference/d", "DocumentReference/s"]
    assert rows.column("problem").to_pylist() == [None, "invalid_unicode"]
    assert rejected == {"not_a_note": 2, "invalid_unicode": 1, "malformed": 2, "undecodable": 1}


@pytest.mark.parametrize(
    ("stem", "types", "closed", "use"),
    [
        ("documentreference.000", ["DocumentReference"], False, NOTES),
        ("1.diagnosticreport", ["DiagnosticReport"], False, NOTES),
        ("patient.000", ["Patient"], False, RESOURCES),
        ("binary.000", ["Binary"], False, BINARIES),
        ("export", ["Binary"], True, BINARIES),
        ("export", ["Binary", "Patient"], True, BINARIES),
        ("observation", ["Observation"], False, None),
        ("log", [], True, None),
        ("patient", ["Patient", "DocumentReference"], False, MIXED),
        ("patient", ["DocumentReference"], False, MIXED),
        ("export", ["AllergyIntolerance"], False, MIXED),
        ("export", ["AllergyIntolerance"], True, None),
        ("export", ["DocumentReference"], True, NOTES),
        ("export", ["Encounter", "Observation"], True, RESOURCES),
    ],
)
def test_a_file_is_taken_for_what_name_and_beginning_agree_on(
    stem: str, types: list[str], closed: bool, use: str | None
) -> None:
    """A file whose end has not been seen is read for everything unless its name says what it holds."""
    header = Header(tuple(f"resourceType={name}" for name in types), closed=closed)

    assert FHIR.use_of(stem, header) == use


def test_a_table_is_no_export() -> None:
    """Columns that are called like resources make no FHIR of a table."""
    assert FHIR.use_of("patient", Header(("Patient", "DocumentReference"), closed=True)) is None


def test_a_head_tells_its_types(tmp_path: Path) -> None:
    """Types are found wherever the line says them, also in a last line that is cut."""
    path = tmp_path / "all.ndjson"
    content = (
        b'\xef\xbb\xbf{"id": "1", "resourceType": "Patient"}\n{"eventId": 1}\n{"resourceType": "Binary", "data": "x'
    )
    path.write_bytes(content)
    source = FHIR.source(NOTES, LINES)

    whole, part = source.header(path, content), source.header(path, content[:60])

    assert whole == Header(("resourceType=Patient", "resourceType=Binary"), closed=True)
    assert part == Header(("resourceType=Patient",), closed=False)


@pytest.mark.parametrize("stem", ["documentreference", "export"])
def test_a_file_whose_first_line_outgrows_the_head_is_read_for_everything(tmp_path: Path, stem: str) -> None:
    """Its type may stand behind a long text."""
    long = {"id": "d", "content": [{"attachment": attachment("x" * (1 << 20))}], "resourceType": "DocumentReference"}
    path = write_lines(tmp_path / f"{stem}.ndjson", [long])

    header = FHIR.source(NOTES, LINES).header(path, path.read_bytes()[: 1 << 20])

    assert FHIR.use_of(stem, header) == MIXED
    assert read_resources(path, NOTES)[0].num_rows == 1


@pytest.mark.parametrize("is_hidden", [False, True])
def test_notes_in_a_file_of_another_name_are_not_lost(tmp_path: Path, is_hidden: bool) -> None:
    """A file that is taken for patients and holds a note after its beginning is refused."""
    note = {"id": "secret", **({"resourceType": "DocumentReference"} if is_hidden else document("secret"))}
    path = write_lines(tmp_path / "Patient.ndjson", [{"resourceType": "Patient", "id": "p"}, note])

    with pytest.raises(DataError, match="holds notes") as caught:
        read_resources(path, RESOURCES)

    assert "secret" not in str(caught.value)


def test_the_last_version_of_a_resource_counts(tmp_path: Path) -> None:
    """Of two versions the one that was updated last is taken, in any order and however time is written."""
    old = {"resourceType": "Patient", "id": "p", "gender": "male", "meta": {"lastUpdated": "2020-01-02T01:00:00+02:00"}}
    new = {**old, "gender": "female", "meta": {"lastUpdated": "2020-01-01T23:30:00Z"}}

    forward, _ = adapt(tmp_path, [old, new, document("d", patient="Patient/p")])
    backward, _ = adapt(tmp_path, [new, old, document("d", patient="Patient/p")])

    assert forward == backward
    assert forward[0]["feature.sex"] == "female"


def test_ages_over_89_are_pooled_and_types_are_loinc_first(tmp_path: Path) -> None:
    """The oldest share one band; LOINC goes before a local code, and a type's text, which users type, is never read."""
    loinc = {
        "coding": [{"system": "x", "display": "local"}, {"system": "http://loinc.org", "display": "Progress note"}]
    }
    patient = {"resourceType": "Patient", "id": "p", "birthDate": "1900", "gender": "other"}
    notes = [
        document("a", patient="Patient/p", type=loinc, date="2003-02-01"),
        document(
            "b", patient="Patient/p", type={"text": "Letter", "coding": [{"code": "L"}]}, date="1955-05-05T10:00:00Z"
        ),
        document("c", patient="Patient/p", type={"text": "Letter to Jane"}, date=None),
    ]

    records, (_, unresolved) = adapt(tmp_path, [patient, *notes])

    features = ("age_band", "note_type", "sex", "year")
    assert [tuple(record[f"feature.{name}"] for name in features) for record in records] == [
        ("90+", "Progress note", "other", "2003"),
        ("50-59", "L", "other", "1955"),
        (None, None, "other", None),
    ]
    assert (unresolved["year"], unresolved["age_band"], unresolved["note_type"]) == (1, 1, 1)


def test_values_of_other_shapes_cost_no_note(tmp_path: Path) -> None:
    """Whatever stands where an object, list or string should, the note is kept and the missing is counted."""
    odd = {
        "type": "x",
        "subject": [1],
        "context": 5,
        "custodian": "o",
        "date": 3,
        "practiceSetting": None,
        "period": [],
    }
    records, (rejected, unresolved) = adapt(tmp_path, [{**document("d"), **odd}])

    assert [record["text"] for record in records] == ["note d"]
    assert not rejected
    assert set(unresolved) == {"department", "patient", "age_band", "note_type", "sex", "year"}


def test_synthea_has_its_documents(shared: Path) -> None:
    """A real export: 1,215 documents, every one with department, patient and all features."""
    folder = shared / "data" / "synthea_fhir"
    rows, rejected = read_resources(folder / "DocumentReference.000.ndjson", NOTES)
    sides = [
        read_resources(folder / f"{name}.000.ndjson", RESOURCES)[0] for name in ("Patient", "Encounter", "Organization")
    ]

    adapted = FHIR.records(rows, FHIR.lookups({RESOURCES: pa.concat_tables(sides)}))

    assert (adapted.table.num_rows, len(set(adapted.table.column("id").to_pylist()))) == (1215, 1215)
    assert not (rejected + adapted.rejected + adapted.unresolved)
    names = {json.loads(line)["name"] for line in (folder / "Organization.000.ndjson").read_bytes().splitlines()}
    assert set(adapted.table.column("department").to_pylist()) <= names
