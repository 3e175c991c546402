"""A policy grants what it says and nothing else, and tells all of its mistakes at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import document_bytes, parse_document
from schemas.errors import AccessDeniedError, UsageError
from schemas.policy import Grant, Policy, owners_policy, read_policy

CODES = [f"d-{number:012x}" for number in range(6)]
WRITTEN = """
[principals.cardiology-node]
score = ["Cardiology", "d-000000000005"]
[principals.everywhere]
score = ["*"]
[principals.auditor]
aggregate = true
[principals.nobody]
[principals.builder]
build = true
[principals.owner]
administer = true
grantee = "arn:aws:iam::1:role/owner"
"""
grants = st.builds(
    Grant,
    score=st.lists(st.sampled_from(CODES), max_size=4).map(tuple) | st.just(("*",)),
    aggregate=st.booleans(),
    build=st.booleans(),
    administer=st.booleans(),
)


def code_of(name: str) -> str:
    """An opaque code, as a record key would give it."""
    return f"d-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def written(folder: Path, content: str) -> Path:
    """A policy file."""
    path = folder / "policy.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_policy_grants_what_it_says(tmp_path: Path) -> None:
    """Departments by name, by code or all; each role has the keys that it needs and no others."""
    policy = read_policy(written(tmp_path, WRITTEN), code_of)
    codes = [*CODES, code_of("Cardiology")]

    keys = {name: set(policy.keks_of(name, codes)) for name in policy.principals}

    text, results = ({f"{code}/{purpose}" for code in codes} for purpose in ("text", "results"))
    own = {f"{code}/{purpose}" for code in (CODES[5], code_of("Cardiology")) for purpose in ("text", "results")}
    assert keys == {
        "cardiology-node": own,
        "everywhere": text | results,
        "auditor": results,
        "nobody": set(),
        "builder": text | results | {"scratch"},
        "owner": text | results | {"scratch"},
    }


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), grants, min_size=1))
def test_notes_are_readable_for_no_one_without_a_grant(principals: dict[str, Grant]) -> None:
    """Over any policy: a text key is held exactly by those who may score the department; results come with it."""
    policy = Policy(principals=principals)

    for name, grant in principals.items():
        keys = policy.keks_of(name, CODES)
        for code in CODES:
            granted = code in grant.score or "*" in grant.score or grant.build or grant.administer
            assert (f"{code}/text" in keys) == granted
            assert (f"{code}/results" in keys) == (granted or grant.aggregate)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), grants, min_size=1), st.data())
def test_digest_changes_with_any_grant_and_with_nothing_else(principals: dict[str, Grant], data: st.DataObject) -> None:
    """Order of principals and departments plays no part; every grant does."""
    policy = Policy(principals=principals)
    name = data.draw(st.sampled_from(sorted(principals)))
    other = data.draw(grants)

    again = parse_document(document_bytes(policy), Policy, "policy")
    shuffled = Policy(principals=dict(data.draw(st.permutations(list(principals.items())))))
    changed = Policy(principals={**principals, name: other})

    assert again == policy
    assert policy.digest == again.digest == shuffled.digest
    assert (changed.digest == policy.digest) == (other == principals[name])


def test_unknown_principal_is_denied() -> None:
    """Deny by default: exit code 77."""
    with pytest.raises(AccessDeniedError, match="principal node-9: not in the policy") as raised:
        owners_policy("owner").keks_of("node-9", CODES)

    assert raised.value.exit_code == 77


def test_owner_of_a_corpus_without_a_policy_may_do_everything() -> None:
    """Also what comes later: new departments are its too."""
    grant = owners_policy("owner").grant_of("owner")

    assert grant.may_score("d-ffffffffffff")
    assert grant.may_see_results("d-ffffffffffff")
    assert grant.administer
    assert grant.build


def test_all_mistakes_are_told_at_once_without_a_department(tmp_path: Path) -> None:
    """One line has every mistake by its place, and no name of a department."""
    content = """
    extra = 1
    [principals.one]
    score = "Cardiology"
    [principals.two]
    score = ["*", "Oncology"]
    aggregate = "yes"
    [principals.three]
    scores = []
    [principals."fo/ur"]
    [principals.five]
    score = [1]
    grantee = 3
    """

    with pytest.raises(UsageError) as raised:
        read_policy(written(tmp_path, content), code_of)

    message = str(raised.value)
    for part in (
        "9 mistakes",
        "unknown table 'extra'",
        "principals.one: score is no list",
        'principals.two: score has "*" and departments',
        "principals.two: aggregate is neither",
        "principals.three: unknown setting 'scores'",
        "principal of 5 characters: 1 to 64 letters",
        "principals.five: score is no list",
        "principals.five: grantee is no text",
        "nobody may administer",
    ):
        assert part in message
    assert "Cardiology" not in message
    assert "Oncology" not in message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no \\[principals.NAME\\] tables"),
        ("principals = 3", "no \\[principals.NAME\\] tables"),
        ("[principals]\na = 1\n[principals.o]\nadminister = true", "principals.a: no table"),
        ("[[[", "not valid TOML"),
        ("a = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """In one line each, also what is nested beyond all sense."""
    with pytest.raises(UsageError, match=said) as raised:
        read_policy(written(tmp_path, content), code_of)

    assert "\n" not in str(raised.value)


def test_absent_policy_is_refused(tmp_path: Path) -> None:
    """A policy that was named has to be there."""
    with pytest.raises(UsageError, match=r"policy\.toml: No such file"):
        read_policy(tmp_path / "policy.toml", code_of)
