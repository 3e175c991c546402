"""Settings come from defaults, a TOML file, variables and flags; later ones win, and all errors are told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from schemas.errors import UsageError
from schemas.settings import Settings, load_settings

SECRET = "hunter2-chest-pain"


class Columns(BaseModel):
    """A nested group."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = "text"
    record_id: str = "id"


class Source(BaseModel):
    """One item of a list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    columns: Columns = Columns()


class Sample(Settings):
    """A stage's settings, with one field of each sort."""

    target_tokens: int = Field(4_000_000, gt=0)
    group: Literal["none", "patient"] = "none"
    share: float = 0.5
    features: list[str] = Field(default_factory=list)
    sources: list[Source] = Field(default_factory=list)
    columns: Columns = Columns()

    @field_validator("features")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("name every feature once")
        return value


def load(
    tmp_path: Path | None = None, *, toml: str | None = None, environment: dict[str, str] | None = None, **flags: Any
) -> Sample:
    """Settings of section ``sharding``, from text."""
    config_file = None
    if toml is not None and tmp_path is not None:
        config_file = tmp_path / "ppl.toml"
        config_file.write_text(toml, encoding="utf-8")
    return load_settings(Sample, "sharding", flags=flags, config_file=config_file, environment=environment or {})


def refusal(*arguments: Any, **options: Any) -> str:
    """The one line with which settings are refused."""
    with pytest.raises(UsageError) as caught:
        load(*arguments, **options)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert len(message.splitlines()) == 1
    return message


# --- order


@given(
    values=st.tuples(*[st.none() | st.integers(1, 10**9)] * 3),
)
def test_the_last_source_that_speaks_wins(
    values: tuple[int | None, int | None, int | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """TOML before variables before flags; a source that does not name a field leaves it."""
    in_file, in_environment, in_flags = values

    settings = load(
        tmp_path_factory.mktemp("toml"),
        toml="" if in_file is None else f"[sharding]\ntarget_tokens = {in_file}",
        environment={} if in_environment is None else {"PPL_SHARDING_TARGET_TOKENS": str(in_environment)},
        target_tokens=in_flags,
    )

    expected = next((value for value in reversed(values) if value is not None), 4_000_000)
    assert settings.target_tokens == expected


def test_nested_fields_merge_field_by_field(tmp_path: Path) -> None:
    """A variable for one nested field does not forget its neighbours in the file, nor a flag those in a variable."""
    settings = load(
        tmp_path,
        toml='[sharding.columns]\ntext = "a"\nrecord_id = "b"',
        environment={"PPL_SHARDING_COLUMNS__TEXT": "c"},
    )

    assert settings.columns == Columns(text="c", record_id="b")
    assert load_settings(
        Sample,
        "sharding",
        flags={"columns.record_id": "d"},
        environment={"PPL_SHARDING_COLUMNS": '{"text": "e", "record_id": "f"}'},
    ).columns == Columns(text="e", record_id="d")


def test_flags_that_were_not_given_change_nothing(tmp_path: Path) -> None:
    """None and the empty tuple of a repeatable flag leave the file's values; 0 and false are values."""
    toml = '[sharding]\ntarget_tokens = 7\nfeatures = ["sex"]\nshare = 0.25'

    kept = load(tmp_path, toml=toml, target_tokens=None, features=())
    set_to_zero = load(tmp_path, toml=toml, share=0)

    assert (kept.target_tokens, kept.features) == (7, ["sex"])
    assert set_to_zero.share == 0


def test_a_variable_names_the_config_file(tmp_path: Path) -> None:
    """``PPL_CONFIG`` is read where no file was given, and a given file wins over it."""
    (tmp_path / "one.toml").write_text("[sharding]\ntarget_tokens = 1")
    (tmp_path / "two.toml").write_text("[sharding]\ntarget_tokens = 2")
    environment = {"PPL_CONFIG": str(tmp_path / "one.toml")}

    by_variable = load_settings(Sample, "sharding", flags={}, environment=environment)
    by_flag = load_settings(Sample, "sharding", flags={}, config_file=tmp_path / "two.toml", environment=environment)

    assert (by_variable.target_tokens, by_flag.target_tokens) == (1, 2)
    assert load_settings(Sample, "sharding", flags={}, environment={"PPL_CONFIG": ""}) == Sample()


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an explicit environment the variables of the process count."""
    monkeypatch.setenv("PPL_SHARDING_TARGET_TOKENS", "12")

    assert load_settings(Sample, "sharding", flags={}).target_tokens == 12


def test_other_sections_are_left_to_their_stages(tmp_path: Path) -> None:
    """One file configures all three stages, and each reads its own table and variables."""
    settings = load(
        tmp_path,
        toml="[scoring]\nanything = 1\n[aggregate]\nelse = 2",
        environment={"PPL_SCORING_TARGET_TOKENS": "5", "PPL_OTHER": "6", "SHARDING_TARGET_TOKENS": "7"},
    )

    assert settings == Sample()


@pytest.mark.parametrize(
    ("text", "expected"),
    [('["a", "b"]', ["a", "b"]), ("[]", [])],
)
def test_a_variable_can_hold_a_list(text: str, expected: list[str]) -> None:
    """Lists are written as JSON in a variable."""
    assert load(environment={"PPL_SHARDING_FEATURES": text}).features == expected


# --- errors


def test_all_errors_are_told_at_once_with_their_origin(tmp_path: Path) -> None:
    """One run shows every wrong field and whether the file, a variable or a flag is to be mended."""
    message = refusal(
        tmp_path,
        toml='[sharding]\ntarget_tokens = -1\ngroup = "ward"\nunheard_of = 1\n[sharding.columns]\nnote = "x"',
        environment={"PPL_SHARDING_SHARE": "much"},
        features=["sex", "sex"],
    )

    assert message.startswith("6 wrong settings: ")
    for part in (
        "sharding.target_tokens (ppl.toml [sharding]): ",
        "sharding.group (ppl.toml [sharding]): ",
        "sharding.unheard_of (ppl.toml [sharding]): ",
        "sharding.columns.note (ppl.toml [sharding]): ",
        "sharding.share (PPL_SHARDING_SHARE): ",
        "sharding.features (--features): name every feature once",
    ):
        assert part in message


class Pair(BaseModel):
    """A nested group that checks its fields together."""

    one: int = 1
    two: int = 2

    @model_validator(mode="after")
    def _differ(self) -> Pair:
        if self.one == self.two:
            raise ValueError("--one and --two are the same")
        return self


class Paired(Settings):
    """Settings that are checked together, at the top and in a group."""

    pair: Pair = Pair()
    sum: int = 3

    @model_validator(mode="after")
    def _adds_up(self) -> Paired:
        if self.sum != self.pair.one + self.pair.two:
            raise ValueError("--sum is not that of the pair")
        return self


def test_settings_that_do_not_go_together_are_named_by_what_is_said_of_them() -> None:
    """No field of the model stands for them, and nothing that was set is said not to be."""
    said = []
    for flags in ({"sum": 4}, {"pair.one": 5, "pair.two": 5}, {"pair.one": "x"}, {"unheard": 1}):
        with pytest.raises(UsageError) as caught:
            load_settings(Paired, "sharding", flags=flags, environment={})
        said.append(str(caught.value).removeprefix("1 wrong settings: "))

    assert said[0] == "sharding: --sum is not that of the pair"
    assert said[1] == "sharding.pair (--one, --two): --one and --two are the same"
    assert said[2].startswith("sharding.pair.one (--one): should be a valid integer")
    assert said[3] == "sharding.unheard (--unheard): there is no such setting; leave it out"


def test_the_winning_source_is_blamed(tmp_path: Path) -> None:
    """A wrong flag over a right file is the flag's error, and a right flag over a wrong file is none."""
    message = refusal(tmp_path, toml="[sharding]\ntarget_tokens = 5", target_tokens=-1)

    assert "sharding.target_tokens (--target-tokens): " in message
    assert load(tmp_path, toml="[sharding]\ntarget_tokens = -1", target_tokens=5).target_tokens == 5


def test_an_error_deep_in_a_list_knows_its_origin(tmp_path: Path) -> None:
    """However deep the wrong field lies in an item, its source is named."""
    toml = '[[sharding.sources]]\npath = "a"\n[sharding.sources.columns]\nnote = "x"\n[[sharding.sources]]\nwrong = 1'

    message = refusal(tmp_path, toml=toml)

    assert "sharding.sources.0.columns.note (ppl.toml [sharding]): " in message
    assert "sharding.sources.1.path (ppl.toml [sharding]): is needed; set it" in message
    assert "not set" not in message


@pytest.mark.parametrize(
    "environment",
    [
        {"PPL_SHARDING_UNHEARD_OF": "1"},
        {"PPL_SHARDING_COLUMNS__NOTE": "x"},
        {"PPL_SHARDING_TARGET_TOKENS__DEEP": "1"},
        {"PPL_SHARDING_": "1"},
    ],
)
def test_a_mistyped_variable_is_an_error(environment: dict[str, str]) -> None:
    """A variable of our prefix that names no field is told, with its name."""
    message = refusal(environment=environment)

    assert next(iter(environment)) in message


@pytest.mark.parametrize("value", [SECRET, '{"deep": "' + SECRET + '"}', '["' + SECRET + '"]'])
@pytest.mark.parametrize("field", ["TARGET_TOKENS", "GROUP", "SHARE", "COLUMNS"])
def test_no_value_is_echoed(field: str, value: str) -> None:
    """A secret in the wrong variable does not reach the screen."""
    message = refusal(environment={f"PPL_SHARDING_{field}": value})

    assert SECRET not in message
    assert f"PPL_SHARDING_{field}" in message


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[shardings]\nx = 1", "unknown tables shardings; known are sharding, scoring, aggregate"),
        ("target_tokens = 1", "unknown tables target_tokens"),
        ("sharding = 1", "sharding is no table"),
        ("[[sharding]]\nx = 1", "sharding is no table"),
        ("[sharding", "not valid TOML"),
        (f"[sharding]\nx = {SECRET}", "not valid TOML"),
        ("[sharding]\ntarget_tokens = 1\ntarget_tokens = 2", "not valid TOML"),
        ("[sharding]\nx = " + "[" * 100_000, "not valid TOML"),
        ("[sharding]\nshare = nan", "sharding.share (ppl.toml [sharding])"),
        ("[sharding]\nshare = inf", "sharding.share (ppl.toml [sharding])"),
    ],
)
def test_a_wrong_file_is_one_line(toml: str, expected: str, tmp_path: Path) -> None:
    """Misspelt tables, broken TOML and numbers that are none are told without quoting the file."""
    message = refusal(tmp_path, toml=toml)

    assert expected in message
    assert SECRET not in message


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    """Absent, a folder, or not UTF-8: named by its last parts."""
    (tmp_path / "latin.toml").write_bytes(b"[sharding]\n# caf\xe9")
    for path, expected in (
        (tmp_path / "absent.toml", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin.toml", "not valid TOML"),
    ):
        with pytest.raises(UsageError, match=expected) as caught:
            load_settings(Sample, "sharding", flags={}, config_file=path, environment={})
        assert str(tmp_path.parent.parent) not in str(caught.value)


def test_a_variable_too_deep_for_json_is_one_line() -> None:
    """A variable that nests without end is a wrong value, not a crash."""
    assert "PPL_SHARDING_FEATURES" in refusal(environment={"PPL_SHARDING_FEATURES": "[" * 100_000})


def test_settings_are_frozen() -> None:
    """Nobody changes a setting after the command began."""
    with pytest.raises(ValidationError, match="frozen"):
        Sample().target_tokens = 1  # type: ignore[misc]
