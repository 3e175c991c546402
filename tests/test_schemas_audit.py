"""An audit log tells every edit, outlives its writers, and has room for nothing but opaque ids."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.audit import MOST_TAIL_BYTES, TAIL_BYTES, AuditLog, head_of
from schemas.audit_chain import check_chain, read_chain, require_head
from schemas.audit_events import MAX_LINE_BYTES, NO_EVENTS, AuditHead, parse_event
from schemas.errors import IntegrityError, PipelineError, UsageError

ROOT = Path(__file__).parents[1]
SHARD = "d-0123456789ab-00001"
TEXT = "Mrs Example, MRN 12345678"
NUM_EVENTS = 6


def a_log(path: Path, num_events: int = NUM_EVENTS) -> AuditLog:
    """A log with some events."""
    log = AuditLog(path, "node-1")
    for number in range(num_events):
        log.append("read", f"d-0123456789ab-{number:05}", "done")
    return log


def is_refused(path: Path, head: AuditHead) -> bool:
    """Whether the log is no chain, or one that lacks this head."""
    try:
        require_head(path, head)
    except IntegrityError:
        return True
    return False


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, AuditHead]:
    """The bytes of a log with a torn line in its middle, and its head."""
    log = a_log(tmp_path_factory.mktemp("audit") / "log.jsonl")
    with log.path.open("ab") as file:
        file.write(b'{"action":"rea')
    head = [log.append("score", SHARD, outcome) for outcome in ("denied", "failed", "done")][-1]
    return log.path.read_bytes(), head


@given(numbers=st.lists(st.sampled_from(["read", "refuse", "score", "key.use"]), max_size=8), who=st.just("a_b-1"))
def test_what_is_appended_is_a_chain(tmp_path_factory: pytest.TempPathFactory, numbers: list[str], who: str) -> None:
    """Events count from 1, the head after each is in the log for good, and the last one is the log's."""
    log = AuditLog(tmp_path_factory.mktemp("audit") / "log.jsonl", who)

    heads = [log.append(action, SHARD, "done") for action in numbers]  # type: ignore[arg-type]

    assert [head.num_events for head in heads] == list(range(1, len(heads) + 1))
    assert not any(is_refused(log.path, head) for head in heads)
    assert not heads or head_of(log.path) == check_chain(log.path) == heads[-1]
    assert not heads or sum(read_chain(log.path).outcomes.values()) == len(heads)


@given(data=st.data())
def test_any_changed_byte_is_found(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[bytes, AuditHead], data: st.DataObject
) -> None:
    """Wherever it is, torn lines and newlines included, a log that was anchored at its end is not the same any more."""
    content = bytearray(made[0])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("audit") / "log.jsonl"
    path.write_bytes(content)

    assert is_refused(path, made[1])


@given(data=st.data())
def test_removed_inserted_swapped_and_repeated_lines_are_found(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[bytes, AuditHead], data: st.DataObject
) -> None:
    """Any other list of the same lines, or with a line more or less, is refused."""
    lines = made[0].splitlines(keepends=True)
    one, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    swapped = list(lines)
    swapped[one], swapped[other] = lines[other], lines[one]
    edits: dict[str, list[bytes]] = {
        "remove": lines[:one] + lines[one + 1 :],
        "repeat": [*lines[:one], lines[other], *lines[one:]],
        "insert": [*lines[:one], b"\n", *lines[one:]],
        "swap": swapped,
    }
    edit = data.draw(st.sampled_from([name for name, edited in edits.items() if edited != lines]))
    path = tmp_path_factory.mktemp("audit") / "log.jsonl"
    path.write_bytes(b"".join(edits[edit]))

    assert is_refused(path, made[1])


@given(data=st.data())
def test_log_cut_below_an_anchored_head_is_found(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[bytes, AuditHead], data: st.DataObject
) -> None:
    """Wherever it is cut, within a line or between two, also where nothing but the last newline goes."""
    path = tmp_path_factory.mktemp("audit") / "log.jsonl"
    path.write_bytes(made[0][: data.draw(st.integers(0, len(made[0]) - 1))])

    assert is_refused(path, made[1])


def test_log_that_was_cut_and_went_on_does_not_match_its_anchor(tmp_path: Path) -> None:
    """A log chained anew by whoever can write is a chain, but not the one that was signed."""
    log = a_log(tmp_path / "log.jsonl")
    head, lines = head_of(log.path), log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-1]))

    with pytest.raises(IntegrityError, match=r"signed manifest does not match: the log ends at event 5, event 6 was"):
        require_head(log.path, head)
    log.append("refuse", SHARD, "denied")
    with pytest.raises(IntegrityError, match=r"signed manifest does not match: event 6 has sha256 [0-9a-f]{16}…"):
        require_head(log.path, head)

    assert check_chain(log.path).num_events == NUM_EVENTS


@given(tears=st.lists(st.binary(min_size=1, max_size=400).map(lambda tear: tear.replace(b"\n", b"\r")), max_size=6))
def test_torn_lines_are_recorded_by_the_next_event(
    tmp_path_factory: pytest.TempPathFactory, tears: list[bytes]
) -> None:
    """Whatever a killed writer left, also if the writer after it was killed too, the log goes on and is a chain."""
    log = a_log(tmp_path_factory.mktemp("audit") / "log.jsonl", 2)
    with log.path.open("ab") as file:
        file.write(b"\n".join(tears))
    before = log.path.read_bytes()

    torn, head = read_chain(log.path), log.append("read", SHARD, "done")

    event = parse_event(log.path.read_bytes().splitlines(keepends=True)[-1])
    assert event is not None
    assert (event.seq, bool(event.torn)) == (3, bool(tears))
    assert log.path.read_bytes().startswith(before)
    assert (torn.head.num_events, torn.num_torn, read_chain(log.path).num_torn) == (2, len(tears), len(tears))
    assert check_chain(log.path) == head


def test_first_line_may_be_torn(tmp_path: Path) -> None:
    """The first writer can be killed too; its bytes are in the digest of the first event."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"action":"bu')
    path.chmod(0o600)

    head = AuditLog(path, "node-1").append("build", "b-0123456789abcdef", "done")

    assert (check_chain(path), head.num_events) == (head, 1)
    path.write_bytes(path.read_bytes().replace(b'"bu\n', b'"re\n'))
    with pytest.raises(IntegrityError, match="chain breaks at event 1: what stands before it was changed"):
        check_chain(path)


def test_edit_of_the_last_line_does_not_pass_for_a_tear(tmp_path: Path) -> None:
    """A whole line that is no event was edited: it is neither accepted nor built upon."""
    log = a_log(tmp_path / "log.jsonl")
    edited = log.path.read_bytes().replace(b'"seq":6', b'"seq":"6"')
    log.path.write_bytes(edited)

    with pytest.raises(IntegrityError, match="breaks at event 6: a whole line that is no event stands there"):
        check_chain(log.path)
    for use in (lambda: log.append("read", SHARD, "done"), lambda: head_of(log.path)):
        with pytest.raises(IntegrityError, match="neither an event nor a torn one"):
            use()

    assert log.path.read_bytes() == edited


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "at event 3: event 4 stands there; lines were removed"),
        (lambda lines: [*lines[:2], b"{}\n", *lines[2:]], "at event 3: 1 lines that are no events stand there"),
        (lambda lines: [*lines[:2], b" " * 2000 + b"\n", *lines[2:]], "at event 3: a line of over 1024 bytes"),
        (lambda lines: [lines[0].replace(b"read", b"score"), *lines[1:]], "at event 2: what stands before it was"),
        (lambda lines: [lines[0][:-2] + b',"torn":true}\n', *lines[1:]], "at event 1: 1 lines that are no events"),
        (
            lambda lines: [lines[0].replace(b',"what"', b',"torn":true,"what"'), *lines[1:]],
            "at event 1: it follows a torn line that is not there",
        ),
    ],
)
def test_break_is_named(tmp_path: Path, edit: Callable[[list[bytes]], list[bytes]], said: str) -> None:
    """Which event, how it breaks, and nothing of what stands there."""
    log = a_log(tmp_path / "log.jsonl")
    log.path.write_bytes(b"".join(edit(log.path.read_bytes().splitlines(keepends=True))))

    with pytest.raises(IntegrityError, match=said) as raised:
        check_chain(log.path)

    assert "log.jsonl: the chain breaks" in str(raised.value)
    assert "d-0123456789ab" not in str(raised.value)


def test_processes_share_a_log(tmp_path: Path) -> None:
    """Four processes that append at once write one chain, and nobody's event is lost."""
    path, each = tmp_path / "log.jsonl", 25
    program = (
        "import sys\nfrom pathlib import Path\nfrom schemas.audit import AuditLog\n"
        f"log = AuditLog(Path(sys.argv[1]), sys.argv[2])\n"
        f"for number in range({each}):\n    log.append('score', f'd-0123456789ab-{{number:05}}', 'done')\n"
    )
    commands = [[sys.executable, "-c", program, str(path), f"node-{number}"] for number in range(4)]

    processes = [subprocess.Popen(command, cwd=ROOT) for command in commands]

    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert check_chain(path).num_events == 4 * each
    lines = path.read_text().splitlines()
    assert all(sum(f'"who":"node-{number}"' in line for line in lines) == each for number in range(4))


def test_threads_share_a_log(tmp_path: Path) -> None:
    """Threads of one process do not take each other's place, and readers meet no half-written line."""
    log = a_log(tmp_path / "log.jsonl")

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(log.append, "read", SHARD, "done") for _ in range(40)]
        readers = [pool.submit(read_chain, log.path) for _ in range(10)]

    seen = {reader.result().num_torn for reader in readers}
    assert sorted(writer.result().num_events for writer in writers) == list(range(NUM_EVENTS + 1, NUM_EVENTS + 41))
    assert (check_chain(log.path).num_events, seen) == (NUM_EVENTS + 40, {0})


def test_append_reads_only_the_tail(tmp_path: Path) -> None:
    """What stands before the last 2 KiB costs nothing: there, a hole of a gigabyte is not noticed."""
    log = a_log(tmp_path / "log.jsonl", 12)
    tail = log.path.read_bytes()
    with log.path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 30)
        file.write(b"\n" + tail)

    head = log.append("read", SHARD, "done")

    assert len(tail) > TAIL_BYTES
    assert head.num_events == 13 == head_of(log.path).num_events


def test_end_without_an_event_is_refused(tmp_path: Path) -> None:
    """A file that is no audit log is not written to, however long it is."""
    for content in (b"text\n", b"text\n" * MOST_TAIL_BYTES, b"t" * MAX_LINE_BYTES, b"t" * MOST_TAIL_BYTES):
        path = tmp_path / f"{len(content)}.jsonl"
        path.write_bytes(content)
        path.chmod(0o600)

        with pytest.raises(IntegrityError, match="neither an event nor a torn one"):
            AuditLog(path, "node-1").append("read", SHARD, "done")

        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "what",
    [
        "b-0123456789abcdef",
        "r-0123456789abcdef",
        SHARD,
        "d-0123456789ab",
        "d-0123456789ab/text",
        "b-0123456789abcdef/d-0123456789ab-00001",
        "scratch",
        "report/" + "5a" * 32,
        "principal/node_1",
    ],
)
def test_opaque_ids_are_logged(tmp_path: Path, what: str) -> None:
    """Whatever the project calls by an id can be named."""
    AuditLog(tmp_path / "log.jsonl", "node-1").append("verify", what, "done")

    assert f'"what":"{what}"' in (tmp_path / "log.jsonl").read_text()


@pytest.mark.parametrize(
    "what",
    [
        "",
        TEXT,
        "cardiology",
        "MRN12345678",
        "123-45-6789",
        "2026-12-02",
        "+1-555-0100",
        "name@example.org",
        "../b-0123456789abcdef",
        "/b-0123456789abcdef",
        SHARD + "\n",
        "principal/" + "a" * 200,
        "/".join(["text"] * 5),
    ],
)
def test_what_could_be_a_patients_is_refused_and_not_told(tmp_path: Path, what: str) -> None:
    """Text, raw ids, names and dates have no permitted form; nothing is written, and the message quotes none."""
    log = AuditLog(tmp_path / "log.jsonl", "node-1")

    with pytest.raises(UsageError, match=f"audit log: {len(what)} characters that are no opaque id") as raised:
        log.append("read", what, "done")

    assert len(what) < 5 or what not in str(raised.value)
    assert not log.path.exists()


def test_who_and_action_are_checked(tmp_path: Path) -> None:
    """No free text gets in by another field either."""
    calls: list[Callable[[], object]] = [
        lambda: AuditLog(tmp_path / "log.jsonl", TEXT).append("read", SHARD, "done"),
        lambda: AuditLog(tmp_path / "log.jsonl", "node-1").append(TEXT, SHARD, "done"),  # type: ignore[arg-type]
        lambda: AuditLog(tmp_path / "log.jsonl", "node-1").append("read", SHARD, TEXT),  # type: ignore[arg-type]
    ]

    for call in calls:
        with pytest.raises(UsageError) as raised:
            call()
        assert TEXT not in str(raised.value)

    assert not (tmp_path / "log.jsonl").exists()


def test_log_is_its_owners_alone(tmp_path: Path) -> None:
    """File and folder are closed from the first byte on."""
    log = a_log(tmp_path / "audit" / "log.jsonl", 1)

    assert log.path.stat().st_mode & 0o777 == 0o600
    assert log.path.parent.stat().st_mode & 0o777 == 0o700


def test_places_that_are_no_log_are_refused(tmp_path: Path) -> None:
    """Links, folders, pipes and files that others may write: one line says what is wrong."""
    a_log(tmp_path / "real.jsonl", 1).path.chmod(0o660)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl", 0o600)
    said = {"real": "mode is 0660", "link": "a symbolic link", "folder": "cannot be written", "pipe": "no regular file"}

    for name, reason in said.items():
        with pytest.raises(PipelineError, match=reason):
            AuditLog(tmp_path / f"{name}.jsonl", "node-1").append("read", SHARD, "done")

    assert not (tmp_path / "elsewhere.jsonl").exists()


def test_absent_log_has_no_head(tmp_path: Path) -> None:
    """A log that was removed is not an empty one; an empty one has the head of no events."""
    for check in (head_of, check_chain):
        with pytest.raises(IntegrityError, match=r"log\.jsonl: no such file"):
            check(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").touch()

    assert head_of(tmp_path / "log.jsonl") == check_chain(tmp_path / "log.jsonl") == NO_EVENTS


def test_full_disk_leaves_a_sound_log(tmp_path: Path) -> None:
    """A write that the disk takes in part is taken back, so the log can go on once there is space."""
    import resource
    import signal

    log = a_log(tmp_path / "log.jsonl")
    before, head = log.path.read_bytes(), head_of(log.path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
        with pytest.raises(PipelineError, match="free the space"):
            log.append("read", SHARD, "done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert log.path.read_bytes() == before
    assert log.append("read", SHARD, "done").num_events == head.num_events + 1
