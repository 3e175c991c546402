"""Which family the inputs are of, and what each file is for: told by names and columns, said, and never guessed.

With a column for the note named, every file is a table of notes. Otherwise a family is taken if it was asked for, or if
it is the only one that finds notes among the inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas.errors import DataError, UsageError
from schemas.seals import label
from sharding.config import ShardingSettings, mapping_problem
from sharding.inputs import MAX_NAMES_SAID, SourceFile, check_columns, head_of
from sharding.sources.adapter import MIXED, NOTES, Adapter
from sharding.sources.adapters import ADAPTERS, AUTO, TABLE
from sharding.sources.compression import COMPRESSIONS
from sharding.sources.formats import FORMATS, SUFFIXES, format_of, seen_format
from sharding.sources.source import ALL_COLUMNS, HEAD_BYTES, WHOLE_ROW, Header

Mappings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a build reads.

    Attributes:
        settings: Their ``source`` is ``table`` or a family, never ``auto``.
        files: Those that are of use, which each of them tells.
        note_columns: How to read the notes of a file: name in the table that is read → column, by path.
        side_columns: How to read what a file says beside notes.
        ignored: Files that are of no use to the family.
        unseen: Paths of files of which nothing could be told, since their first line is too long.
        unsaid: Columns of side tables that none of a file's first lines has, by path; null until one has them.
    """

    settings: ShardingSettings
    files: list[SourceFile]
    note_columns: Mapping[Path, Mappings]
    side_columns: Mapping[Path, Mappings] = field(default_factory=dict)
    ignored: Sequence[SourceFile] = ()
    unseen: frozenset[Path] = frozenset()
    unsaid: Mapping[Path, Sequence[str]] = field(default_factory=dict)


def recognise(files: Sequence[SourceFile], settings: ShardingSettings) -> Recognised:
    """Find out what the files are.

    Raises:
        UsageError: a mapped column or one of a side table is missing, no family or more than one fits, or columns are
            mapped for a family that knows its own.
        DataError: a file has no readable header, or its first line is too long to tell what it is.
    """
    if settings.is_table:
        check_columns(files, settings)
        whole = {} if settings.has_id else {WHOLE_ROW: ALL_COLUMNS}
        columns = {**settings.columns.by_role, **whole}
        of_files = {file.path: columns for file in files}
        return Recognised(settings.model_copy(update={"source": TABLE}), list(files), of_files)
    names = list(ADAPTERS) if settings.source == AUTO else [settings.source]
    seen = [_seen(file, names, settings) for file in files]
    files = [file for file, _ in seen]
    headers = {file.path: told for file, told in seen}
    found = {name: _uses(files, ADAPTERS[name], headers, settings=settings) for name in names}
    fitting = [name for name, members in found.items() if _holds_notes(members, is_asked=settings.source == name)]
    _check_seen([found[name] for name in fitting] or found.values())
    if len(fitting) != 1:
        raise UsageError(_said_unfit(fitting, settings, num_files=len(files)))
    if problem := mapping_problem(settings.columns, fitting[0]):
        raise UsageError(f"source: {problem}")
    _check_sides(found[fitting[0]].ignored, ADAPTERS[fitting[0]], headers)
    return found[fitting[0]]


def notices_of(recognised: Recognised) -> list[str]:
    """What was recognised and what is left out, in one line each; nothing for plain tables."""
    name = recognised.settings.source
    if name == TABLE:
        return []
    counts = Counter(file.use for file in recognised.files)
    said = [f"source: {name}; files: {', '.join(f'{count} of {use}' for use, count in sorted(counts.items()))}"]
    if recognised.ignored:
        said.append(f"inputs: files of no use to source {name} are left out: {_names(recognised.ignored)}")
    is_auto = recognised.settings.format == AUTO
    if tabbed := [file for file in recognised.files if is_auto and file.format != format_of(file.path, AUTO)]:
        said.append(f"inputs: read as TSV, since there are tabs and no comma in their first lines: {_names(tabbed)}")
    for path, columns in recognised.unsaid.items():
        if columns:
            said.append(
                f"inputs: no {' or '.join(columns)} in the first lines of {path.name}; null unless a line has it"
            )
    return said


def _seen(
    file: SourceFile, families: Sequence[str], settings: ShardingSettings
) -> tuple[SourceFile, dict[str, Header]]:
    """A file by its true format, and what each family's own source of notes tells of it; its head is read once."""
    head = head_of(file, settings.encoding)
    if settings.format == AUTO:
        file = replace(file, format=seen_format(file.format, head))
    sources = {name: ADAPTERS[name].source(NOTES, FORMATS[file.format]) for name in families}
    told = {source: source.header(file.path, head) for source in dict.fromkeys(sources.values())}
    return file, {name: told[source] for name, source in sources.items()}


def _uses(
    files: Sequence[SourceFile],
    adapter: Adapter,
    headers: Mapping[Path, Mapping[str, Header]],
    *,
    settings: ShardingSettings,
) -> Recognised:
    used, ignored, unseen = [], [], set()
    note_columns: dict[Path, Mappings] = {}
    side_columns: dict[Path, Mappings] = {}
    unsaid: dict[Path, Sequence[str]] = {}
    for file in files:
        header = headers[file.path][adapter.name]
        use = adapter.use_of(_stem(file.path), header)
        if header.is_cut:
            unseen.add(file.path)
        if use is None:
            ignored.append(file)
            continue
        used.append(replace(file, use=use))
        if use in (NOTES, MIXED):
            note_columns[file.path] = adapter.columns(NOTES, header)
        if use != NOTES:
            side_columns[file.path] = adapter.columns(use, header)
            unsaid[file.path] = adapter.lacking(_stem(file.path), header)
    named = settings.model_copy(update={"source": adapter.name})
    return Recognised(named, used, note_columns, side_columns, ignored, frozenset(unseen), unsaid)


def _holds_notes(members: Recognised, *, is_asked: bool) -> bool:
    """A file that could not be looked at is no reason to take the inputs for a family that nobody asked for."""
    return any(file.use in (NOTES, MIXED) and (is_asked or file.path not in members.unseen) for file in members.files)


def _check_seen(families: Iterable[Recognised]) -> None:
    """No family that the inputs may be of leaves a file out only because nothing could be told of it."""
    left_out = {file.path for members in families for file in members.ignored if file.path in members.unseen}
    for path in sorted(left_out)[:1]:
        raise DataError(
            f"{label(path)}: its first line has no end in the first {HEAD_BYTES} bytes and is no JSON object there, so "
            "nothing tells what it is; put another line first, leave the file out, or name the column of the note with "
            "--text"
        )


def _check_sides(ignored: Sequence[SourceFile], adapter: Adapter, headers: Mapping[Path, Mapping[str, Header]]) -> None:
    """No file is left out that has the name of a side table: what it knows would be unknown."""
    problems = []
    for file in ignored:
        header = headers[file.path][adapter.name]
        missing = adapter.lacking(_stem(file.path), header)
        if missing and (header.closed or header.columns):
            place = "" if header.closed else " in its first lines"
            problems.append(f"{label(file.path)}: no column {', '.join(map(repr, missing))}{place}")
    if problems:
        raise UsageError(
            f"{'; '.join(problems)}; a file of such a name is a side table of source {adapter.name}: give it with "
            "these columns, rename it if it is something else, or leave it out"
        )


def _names(files: Sequence[SourceFile]) -> str:
    names = [file.path.name for file in files]
    more = f" and {len(names) - MAX_NAMES_SAID} more" if len(names) > MAX_NAMES_SAID else ""
    return f"{', '.join(names[:MAX_NAMES_SAID])}{more}"


def _stem(path: Path) -> str:
    name = path.name.lower()
    for suffix in (*COMPRESSIONS, *SUFFIXES):
        name = name.removesuffix(suffix)
    return name


def _said_unfit(fitting: Sequence[str], settings: ShardingSettings, *, num_files: int) -> str:
    if fitting:
        return f"inputs: the files look like {' and like '.join(fitting)}; say which with --source"
    if settings.source == AUTO:
        families = ", ".join(ADAPTERS)
        return (
            f"inputs: columns.text (--text) is not set, and the {num_files} files are not recognised as {families}; "
            "name the column of the note with --text, or the family with --source"
        )
    return (
        f"inputs: none of the {num_files} files holds notes of source {settings.source}; check the inputs or --source"
    )
