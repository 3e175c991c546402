"""A scheduler on another machine is spoken to over TLS, or because somebody said so, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.errors import TemporaryError, UsageError
from schemas.folders import open_build
from schemas.verification import verify_build
from sharding.cli import cli
from sharding.cluster import ClusterOptions, connected
from sharding.sample_files import write_sample
from sharding.schedulers import Certificates, address_in, check_address
from tests.builds import KEY, opened, some_rows, write_rows
from tests.certificates import Pem, make_certificates
from tests.commands import run_command
from tests.daskprocesses import dask_processes

ROOT = Path(__file__).parents[1]
MAPPING = ["--id", "note_id", "--text", "text", "--department", "department"]
OWN = ["tcp://127.0.0.1:8786", "127.8.9.10:1", "localhost:8786", "tcp://[::1]:8786", "ws://127.0.0.1:1", "inproc://1/2"]
FOREIGN = [
    "tcp://10.0.0.1:8786",
    "node7:8786",
    "tcp://[fe80::1]:8786",
    "ucx://10.0.0.1:1",
    "ws://h:1",
    "tcp://0.0.0.0:1",
]
TRICKS = ["tcp://localhost.evil.org:1", "tcp://127.0.0.1.evil.org:1", "TCP://10.0.0.1:1"]


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    """Certificates of one authority."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


def _certificates(pem: Pem) -> Certificates:
    return Certificates(pem.ca, pem.cert, pem.key)


@pytest.mark.parametrize("address", OWN)
def test_the_machine_itself_needs_no_certificates(address: str) -> None:
    """A plain address that no other machine can answer is taken as it is."""
    check_address(address, None, insecure=False)


@pytest.mark.parametrize("address", [*FOREIGN, *TRICKS])
def test_a_plain_address_of_another_machine_is_refused(address: str) -> None:
    """The error says why, and both ways out; with --insecure it is taken."""
    with pytest.raises(UsageError, match=r"run code on the workers.*--tls-ca.*--insecure"):
        check_address(address, None, insecure=False)
    check_address(address, None, insecure=True)


@pytest.mark.parametrize("address", ["tls://node7:8786", "tls://127.0.0.1:1", "wss://node7:1"])
def test_an_encrypted_address_needs_certificates(address: str, pem: Pem) -> None:
    """Without them nobody knows who answers, so --insecure is no way round."""
    check_address(address, _certificates(pem), insecure=False)
    with pytest.raises(UsageError, match="needs certificates"):
        check_address(address, None, insecure=True)


def test_certificates_with_a_plain_address_are_a_mistake(pem: Pem) -> None:
    """Whoever gives them wants them used."""
    with pytest.raises(UsageError, match="write tls://"):
        check_address("127.0.0.1:8786", _certificates(pem), insecure=True)


@pytest.mark.parametrize("wrong", ["ca", "cert", "key", "other key", "password"])
def test_files_that_are_no_certificates_are_said_at_once(tmp_path: Path, pem: Pem, wrong: str) -> None:
    """A wrong, foreign or closed PEM file is named with its flag, and no password is asked for."""
    other = make_certificates(tmp_path, password=b"secret" if wrong == "password" else None)
    text = tmp_path / "text.pem"
    text.write_text("zebra words")
    chosen = {
        "ca": Certificates(text, pem.cert, pem.key),
        "cert": Certificates(pem.ca, text, pem.key),
        "key": Certificates(pem.ca, pem.cert, text),
        "other key": Certificates(pem.ca, pem.cert, other.key),
        "password": Certificates(other.ca, other.cert, other.key),
    }[wrong]

    with pytest.raises(UsageError, match="--tls-ca" if wrong == "ca" else "--tls-key") as caught:
        chosen.check()

    assert "zebra" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"address": 7}', "zebra", "[" * 100_000])
def test_what_is_no_connection_file_is_a_usage_error(tmp_path: Path, content: str) -> None:
    """It is named, and not quoted."""
    path = tmp_path / "scheduler.json"
    path.write_text(content)

    with pytest.raises(UsageError, match=r"scheduler\.json: no connection file") as caught:
        address_in(path)

    assert "zebra" not in str(caught.value)


@pytest.mark.parametrize("as_file", [False, True])
def test_the_command_refuses_before_it_reads_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_file: bool
) -> None:
    """Exit code 2 and one line, for an address on the command line and for one in a connection file."""
    source = write_rows(tmp_path / "in.csv", some_rows(2))
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": "tcp://10.0.0.1:8786"}))
    flags = ["--scheduler-file", path] if as_file else ["--scheduler", "tcp://10.0.0.1:8786"]

    done = run_command(cli, ["build", source, "--out", tmp_path / "c", "--text", "note", *flags], capsys)

    assert done.code == 2
    assert "--insecure" in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tls-ca", "ca"], "give all three"),
        (["--tls-cert", "cert", "--tls-key", "key"], "give all three"),
        (["--tls-ca", "ca", "--tls-cert", "cert", "--tls-key", "key"], "name a --scheduler"),
        (["--insecure"], "name a --scheduler"),
    ],
)
def test_flags_that_have_no_use_are_usage_errors(
    tmp_path: Path, pem: Pem, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    """Some of the three files, or any of these flags with local workers."""
    source = write_rows(tmp_path / "in.csv", some_rows(2))
    flags = [str(getattr(pem, word, word)) for word in more]

    done = run_command(cli, ["build", source, "--out", tmp_path / "c", "--text", "note", *flags], capsys)

    assert done.code == 2
    assert said in done.err


def test_a_scheduler_of_another_authority_is_not_spoken_to(tmp_path: Path, pem: Pem) -> None:
    """Neither side takes the other's certificate, so the command ends as temporary and names what to check."""
    import dask
    import distributed  # noqa: F401 - its defaults must be there first, or they go when what is set here ends

    other = make_certificates(tmp_path / "other")

    with dask_processes(tmp_path / "dask", tls=pem) as cluster:
        options = ClusterOptions(scheduler_file=cluster.connection_file, tls=_certificates(other))
        with (
            dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
            pytest.raises(TemporaryError, match="one authority"),
            connected(options, tmp_path),
        ):
            pass


def test_a_build_over_tls_survives_workers_that_leave_and_join(tmp_path: Path, pem: Pem) -> None:
    """On a scheduler and workers that were started by hand: one is killed, another joins, and nothing is lost."""
    write_sample(tmp_path / "notes.jsonl", num_records=2_000, num_departments=3, seed=1)
    (tmp_path / "test.key").write_text(KEY)
    command = [sys.executable, "-m", "sharding", "build", tmp_path / "notes.jsonl", *MAPPING]
    options = ["--record-key", tmp_path / "test.key", "--read-block-bytes", "100000", "--target-tokens", "50000"]
    calm = subprocess.run(
        [*command, *options, "--out", tmp_path / "calm", "--workers", "1"], cwd=ROOT, capture_output=True, check=True
    )

    with dask_processes(tmp_path / "dask", tls=pem, workers=["first", "second"]) as cluster:
        assert address_in(cluster.connection_file).startswith("tls://127.0.0.1:")
        process = subprocess.Popen(
            [*command, *options, "--out", tmp_path / "corpus", *cluster.client_flags],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and not list(tmp_path.glob("corpus/scratch/*/keys/*.json")):
            time.sleep(0.01)
        cluster.kill("first")
        cluster.start_worker("third")
        was_at_work = process.poll() is None
        _, errors = process.communicate(timeout=200)

    assert calm.returncode == 0
    assert process.returncode == 0, errors
    assert was_at_work
    made = opened(tmp_path / "corpus")
    assert made.manifest.content_digest == open_build(tmp_path / "calm").manifest.content_digest
    assert verify_build(made, deep=True)["records"] == made.manifest.ledger.num_kept
