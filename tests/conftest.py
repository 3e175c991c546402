"""What all tests share: the public samples, tiny models made once a session, hypothesis without a clock."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.models import make_model

if TYPE_CHECKING:
    from tests.calm import Calm

# A shell that starts tests in the background ignores SIGINT for them, and for all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported anywhere: tests never ask the network
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public sample data beside the repository."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared folder with sample data here")
    return folder


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder of a tiny model by its kind (``tests.models.MODEL_KINDS``); read only, made at first use."""
    made: dict[str, Path] = {}

    def folder_of(kind: str) -> Path:
        if kind not in made:
            made[kind] = make_model(kind, tmp_path_factory.mktemp(f"model-{kind}"))
        return made[kind]

    return folder_of


@pytest.fixture(scope="session")
def tiny_llama(model_of: Callable[[str], Path]) -> Path:
    """A Llama-shaped model folder whose tokenizer has BOS and EOS and adds BOS itself; read only."""
    return model_of("llama")


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """A build of 600 notes that nobody disturbed; read only."""
    from tests.calm import make_calm

    return make_calm(tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="session")
def scheduler() -> Iterator[str]:
    """Address of a Dask scheduler with two worker processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster.scheduler_address
