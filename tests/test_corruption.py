"""Any damage to any file of a build or a run is found, named, and leaves no report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggregate.cli import cli
from tests.commands import run_command
from tests.made_runs import MadeRecord, make_build, make_run

# The lock is empty and held, never read, so nothing can be wrong with it.
SIDE_FILES = {"lock"}
FLIPS = (0.0, 0.13, 0.37, 0.5, 0.81, 0.999999)


@dataclass(frozen=True)
class Damage:
    """One way in which a folder was harmed, and the names of which one must be in the message."""

    what: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Sealed:
    """An intact build and run to be harmed in place."""

    corpus: Path
    build: Path
    run: Path

    @property
    def files(self) -> list[Path]:
        """Every sealed file of both."""
        found = [path for root in (self.build, self.run) for path in root.rglob("*")]
        return sorted(path for path in found if path.is_file() and path.name not in SIDE_FILES)


@pytest.fixture
def sealed(tmp_path: Path) -> Sealed:
    """Two departments, three shards, several blocks, skipped records, two ranks."""
    records = [
        MadeRecord(
            f"n{index}",
            department="a" if index < 6 else "b",
            features=(f"f{index % 2}",),
            loss=None if index == 3 else index / 3,
        )
        for index in range(9)
    ]
    made = make_build(tmp_path / "corpus", records, features=["kind"])
    return Sealed(made.corpus, made.folder, make_run(tmp_path / "run", made, num_ranks=2))


def flipped(path: Path) -> Iterator[Damage]:
    """One bit is another, in several places of the file."""
    content = path.read_bytes()
    for share in FLIPS:
        at = int(share * len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        yield Damage(f"bit of byte {at} of {path.name}", (path.name,))
    path.write_bytes(content)


def shortened(path: Path) -> Iterator[Damage]:
    """The end is missing: one byte, half, or everything."""
    content = path.read_bytes()
    for num_left in (len(content) - 1, len(content) // 2, 0):
        path.write_bytes(content[:num_left])
        yield Damage(f"{path.name} cut to {num_left} bytes", (path.name,))
    path.write_bytes(content)


def lengthened(path: Path) -> Iterator[Damage]:
    """Something was appended, or the content stands there twice."""
    content = path.read_bytes()
    for extra in (b"\n", b"\0", content):
        path.write_bytes(content + extra)
        yield Damage(f"{len(extra)} bytes after {path.name}", (path.name,))
    path.write_bytes(content)


def deleted(path: Path) -> Iterator[Damage]:
    """The file is gone."""
    content = path.read_bytes()
    path.unlink()
    yield Damage(f"{path.name} deleted", (path.name,))
    path.write_bytes(content)


def duplicated(path: Path) -> Iterator[Damage]:
    """The file lies there once more, under a name that looks right."""
    for name in plausible_names(path):
        copy = path.parent / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
        yield Damage(f"{path.name} again as {name}", (copy.name,))
        copy.unlink()
        if copy.parent != path.parent:
            copy.parent.rmdir()


def swapped(path: Path) -> Iterator[Damage]:
    """Two files of one folder have changed places."""
    siblings = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other > path]
    for other in siblings:
        contents = path.read_bytes(), other.read_bytes()
        assert contents[0] != contents[1]
        path.write_bytes(contents[1])
        other.write_bytes(contents[0])
        yield Damage(f"{path.name} and {other.name} swapped", (path.name, other.name))
        path.write_bytes(contents[0])
        other.write_bytes(contents[1])


def plausible_names(path: Path) -> list[str]:
    """Names beside a file that a careless copy or a forger would choose, relative to its folder."""
    names = [f"{path.name}.bak", f".{path.name}", f"{path.stem} (1){path.suffix}"]
    if path.parent.name == "status":
        names.append("rank-00002.json")
    if path.parent.name == "views":
        names.append("d-000000000000.json")
    if path.parent.parent.name == "shards":
        names.append(f"{path.parent.name}-00009.parquet")
    if path.parent.parent.name == "partials":
        shard, block, digest, suffix = path.name.split(".")
        names += [f"{shard}.{int(block) + 7:05d}.{digest}.{suffix}", f"{shard}.{block}.{'0' * 32}.{suffix}"]
        names.append(f"../rank-00007/{path.name}")
    return names


HARMS = [flipped, shortened, lengthened, deleted, duplicated, swapped]


@pytest.mark.parametrize("command", ["report", "verify"])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_bits_flipped_or_files_moved_are_found_and_named(
    sealed: Sealed, harm: Callable[[Path], Iterator[Damage]], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every harm to every file ends with exit 65, one line that names the file, and no report."""
    out = sealed.run.parent / "out"
    arguments = [command, sealed.build, sealed.run, *(["--out", out] if command == "report" else [])]
    missed, num_damages = [], 0

    for path in sealed.files:
        for damage in harm(path):
            num_damages += 1
            done = run_command(cli, arguments, capsys)
            named = any(name in done.err for name in damage.names)
            if done.code != 65 or not named or done.err.count("\n") != 1 or done.out or out.exists():
                missed.append(f"{damage.what}: exit {done.code}: {done.err}")

    assert missed == []
    assert num_damages >= len(sealed.files) // 2
    assert run_command(cli, arguments, capsys).code == 0


@pytest.mark.parametrize("content", [b"", b"b-0000000000000000\n", b"../../etc\n", b"\xff\xfe"])
def test_damaged_current_is_found_and_named(sealed: Sealed, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """A corpus whose CURRENT names no build of it is refused."""
    (sealed.corpus / "CURRENT").write_bytes(content)

    done = run_command(cli, ["verify", sealed.corpus, sealed.run], capsys)

    assert (done.code, "CURRENT" in done.err) == (65, True)


def test_folder_deleted_as_a_whole_is_found(sealed: Sealed, capsys: pytest.CaptureFixture[str]) -> None:
    """The loss of any folder is the loss of its files, and one of them is named."""
    for folder in (sealed.run / "partials", sealed.run / "status", sealed.build / "views", sealed.build / "shards"):
        aside = sealed.run.parent / "aside"
        folder.rename(aside)
        done = run_command(cli, ["verify", sealed.build, sealed.run], capsys)
        aside.rename(folder)

        assert done.code == 65
        assert folder.name in done.err
