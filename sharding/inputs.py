"""Which files a build reads, and whether they have the columns that were asked for; every problem is said at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from schemas.errors import DataError, UsageError
from schemas.seals import label
from sharding.config import Columns, ShardingSettings, flag
from sharding.listing import list_name
from sharding.sources.adapter import NOTES
from sharding.sources.compression import compression_of, plain_head
from sharding.sources.encodings import not_in, to_utf8
from sharding.sources.formats import FORMATS, format_of, is_delimited, is_text, known_suffixes
from sharding.sources.source import HEAD_BYTES, Header

MAX_NAMES_SAID = 30

# What a column is called. A delimited file without a header line shows a record there, whose cells can look like names
# ("Smith John"); records are never quoted, so such a file's names are said only if they all look like identifiers and a
# mapped column other than the id is among them: an id that was copied from the file says nothing about its first line.
_COLUMN_NAME = re.compile(r"[^\W\d][\w .:/()\[\]#%&+-]{0,59}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]{0,39}")
# Keys of inner objects can be data ("P10234"), so only plain words are said of them.
_PATH = re.compile(r"[A-Za-z_]{1,40}(\.[A-Za-z_]{1,40})+")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file as it was found; ``use`` is what it is for, see ``sources.adapter``."""

    path: Path
    format: str
    num_bytes: int
    modified_ns: int
    use: str = NOTES

    @property
    def compression(self) -> str | None:
        """How its bytes are compressed; never for Parquet, which does that itself."""
        return compression_of(self.path) if is_text(self.format) else None

    @property
    def read_as(self) -> list[str]:
        """What its records depend on besides its bytes."""
        uses = [self.use] if self.use != NOTES else []
        return [self.format, *([self.compression] if self.compression else []), *uses]

    @staticmethod
    def found(path: Path, file_format: str) -> SourceFile:
        """The file as it is now."""
        status = path.stat()
        return SourceFile(path, file_format, status.st_size, status.st_mtime_ns)

    def check_unchanged(self) -> None:
        """The file has not been written to since it was found.

        Raises:
            DataError: it has, or it is gone.
        """
        try:
            same = replace(SourceFile.found(self.path, self.format), use=self.use) == self
        except OSError:
            same = False
        if not same:
            raise DataError(f"{label(self.path)}: changed while it was read; run again when nobody writes to it")


@dataclass(frozen=True, slots=True)
class Found:
    """What the inputs' names stand for.

    Attributes:
        files: Each file once, by path.
        folders: Folders that a name or glob gave.
        num_unknown: Files in folders that are of no known format.
        num_hidden: Files and folders in folders that are left out because their names begin with a dot or underscore.
    """

    files: list[SourceFile]
    folders: list[Path]
    num_unknown: int
    num_hidden: int


def find_files(names: Sequence[str], wanted_format: str) -> Found:
    """The files under some names (files, globs, folders).

    Raises:
        UsageError: a name is empty or finds nothing, a named file is of no known format, something is no file, or a
            folder cannot be read.
    """
    if "" in names:
        raise UsageError("inputs: an empty name; is a variable unset?")
    chosen: dict[Path, SourceFile] = {}
    unknown: set[Path] = set()
    hidden: set[Path] = set()
    folders: list[Path] = []
    problems: list[str] = []
    for name in names:
        listing = list_name(name)
        folders += listing.folders
        hidden |= {path.resolve() for path in listing.hidden}
        known = {path: format_of(path, wanted_format) for path in [*listing.named, *listing.within]}
        unknown |= {path.resolve() for path in listing.within if known[path] is None}
        untold = [path for path in listing.named if known[path] is None]
        problems += [f"{label(path)}: no known suffix ({known_suffixes()}); set --format" for path in untold]
        if not any(known.values()) and not untold:
            problems.append(f"{label(Path(name))}: no input file there")
        for path, file_format in known.items():
            if file_format and not path.is_file():
                problems.append(f"{label(path)}: no file, or a link to none; remove it or name other inputs")
            elif file_format:
                # One file that two names find is read once.
                chosen[path.resolve()] = SourceFile.found(path, file_format)
    if problems:
        raise UsageError("; ".join(problems))
    files = sorted(chosen.values(), key=lambda file: str(file.path))
    return Found(files, folders, num_unknown=len(unknown), num_hidden=len(hidden - chosen.keys()))


def check_apart(found: Found, place: Path, said: str = "--out") -> None:
    """A folder that is written to, given by the flag ``said``, is not among what is read: a second build would read it.

    Raises:
        UsageError: names the input.
    """
    place = place.resolve()
    around = [path for path in found.folders if place.is_relative_to(path.resolve())]
    inside = [file.path for file in found.files if file.path.resolve().is_relative_to(place)]
    for path in [*around, *inside][:1]:
        raise UsageError(
            f"{label(path)}: an input that holds the folder of {said} or lies in it; name a folder outside with {said}"
        )


def check_columns(files: Iterable[SourceFile], settings: ShardingSettings) -> None:
    """Every file has every mapped column, as far as its head can tell.

    Raises:
        UsageError: lists each file's missing columns, the settings that ask for them, and the columns found.
    """
    problems = []
    for file in files:
        header = FORMATS[file.format].header(file.path, head_of(file, settings.encoding))
        wanted = settings.columns.by_role
        # In JSON Lines a column may first occur later; but no text and no id in a thousand lines is a wrong name.
        certain = wanted if header.closed else {role: wanted[role] for role in ("id", "text") if role in wanted}
        missing = {role: column for role, column in certain.items() if column not in (*header.columns, *header.paths)}
        if missing and (header.closed or header.columns):
            said = _said_of_delimited(header, wanted) if is_delimited(file.format) else _said(header, _COLUMN_NAME)
            problems.append(f"{label(file.path)}: {describe(missing)}; found are {said}")
        repeated = {role: column for role, column in wanted.items() if header.columns.count(column) > 1}
        if repeated:
            problems.append(f"{label(file.path)}: more than one column for {', '.join(map(flag, repeated))}")
    if problems:
        raise UsageError("; ".join(problems))


def check_seen(seen: frozenset[str], columns: Columns) -> None:
    """Every mapped column occurred somewhere in the inputs, unless no record could be read at all.

    Raises:
        UsageError: lists those that did not.
    """
    missing = {role: column for role, column in columns.by_role.items() if role not in seen}
    if missing and seen:
        raise UsageError(f"inputs: {describe(missing)} in any record; correct the setting or leave it out")


def describe(missing: dict[str, str]) -> str:
    """Missing columns with the settings to change."""
    return "no column " + ", ".join(f"{column!r} ({flag(role)})" for role, column in missing.items())


def head_of(file: SourceFile, encoding: str) -> bytes:
    """The first bytes of a file as plain UTF-8; none of a format that is no text.

    Raises:
        IntegrityError: the file is not in this encoding at all.
    """
    if not is_text(file.format):
        return b""
    try:
        return to_utf8(plain_head(file.path, HEAD_BYTES), encoding)
    except UnicodeError:
        raise not_in(file.path, encoding) from None


def _said_of_delimited(header: Header, wanted: dict[str, str]) -> str:
    there = {role for role, column in wanted.items() if column in header.columns}
    are_names = all(map(_IDENTIFIER.fullmatch, header.columns))
    if not there or (there == {"id"} and are_names):
        return f"{len(header.columns)} others (is there a header line?)"
    return _said(header, _IDENTIFIER)


def _said(header: Header, name: re.Pattern[str]) -> str:
    if not header.columns or not all(map(name.fullmatch, header.columns)):
        return f"{len(header.columns)} that do not look like names (is there a header line?)"
    names = [*header.columns, *filter(_PATH.fullmatch, header.paths)]
    more = len(names) - MAX_NAMES_SAID
    return ", ".join(names[:MAX_NAMES_SAID]) + (f" and {more} more" if more > 0 else "")
