"""Paths that no file can have are refused where they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.closed import read_closed
from schemas.errors import UsageError
from schemas.paths import fault_of_path
from schemas.settings import Settings, load_settings
from sharding.cli import cli
from tests.commands import run_command

LONG_NAME, LONG_PATH = "n" * 256, "/".join(["n" * 200] * 25)


class WithModel(Settings):
    """Settings with a path."""

    model: Path


@pytest.mark.parametrize("path", ["a", "n" * 255, "/" + "/".join(["n" * 200] * 18)])
def test_what_a_file_can_be_called_has_no_fault(path: str) -> None:
    """Up to the longest name and path."""
    assert fault_of_path(path) is None


@pytest.mark.parametrize("long", [LONG_NAME, LONG_PATH, "é" * 128, f"there/{LONG_NAME}/below"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "x.csv", "--out", "LONG"],
        ["build", "LONG", "--out", "corpus", "--plaintext"],
        ["build", "x.csv", "--out", "corpus", "--scratch", "LONG"],
        ["build", "x.csv", "--out", "corpus", "--policy", "LONG"],
        ["build", "x.csv", "--out", "corpus", "--config", "LONG"],
        ["inspect", "LONG"],
        ["verify", "corpus", "--keyring", "LONG"],
        ["verify", "corpus", "--require-signature", "LONG"],
        ["verify", "corpus", "--keyring", "here", "--principal", "LONG"],
        ["keys", "list", "LONG"],
        ["keys", "init", "corpus", "--service", "LONG"],
        ["audit", "verify", "LONG"],
        ["purge", "LONG", "--keep", "1"],
        ["sample", "LONG"],
    ],
    ids=" ".join,
)
def test_a_path_that_is_too_long_is_a_usage_error(
    arguments: list[str],
    long: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whichever argument or option it is given to: one line, and no file."""
    monkeypatch.chdir(tmp_path)

    outcome = run_command(cli, [long if item == "LONG" else item for item in arguments], capsys)

    assert outcome.code == 2
    assert sum(line.startswith("error: ") for line in outcome.err.splitlines()) == 1
    assert "bug" not in outcome.err
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(("text", "said"), [("a\\u0000b", "NUL"), (LONG_NAME, "256 bytes"), (LONG_PATH, "3840")])
def test_a_path_in_a_settings_file_is_checked_too(text: str, said: str, tmp_path: Path) -> None:
    """TOML can hold what no command line can."""
    (tmp_path / "c.toml").write_text(f'[scoring]\nmodel = "{text}"\n')

    with pytest.raises(UsageError, match=said) as refused:
        load_settings(WithModel, "scoring", flags={}, config_file=tmp_path / "c.toml", environment={})

    assert "scoring.model" in str(refused.value)


def test_a_secret_whose_path_is_too_long_is_a_usage_error(tmp_path: Path) -> None:
    """Also where a disk takes less than others do."""
    with pytest.raises(UsageError, match="too long for the disk"):
        read_closed(tmp_path / LONG_NAME, what="keyring", absent="", max_bytes=1)
