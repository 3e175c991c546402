"""Scoring inside the test process: texts in, results out, by the same session, engine and tiles as a run."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.partials import BlockKey
from scoring.assignment import RankIdentity
from scoring.checkpoints import Checkpoint
from scoring.config import PrefixPolicy, ScoringSettings
from scoring.engine import RecordResult, score_blocks
from scoring.models import load_encoder
from scoring.sequences import Memory
from scoring.session import Session, open_session
from scoring.tokens import Encoded, Encoder


@contextmanager
def scoring(model: Path, **settings: Any) -> Iterator[Session]:
    """An open session on the CPU with one thread; its self-test has passed."""
    wanted = ScoringSettings(model=model, device="cpu", threads_per_rank=1, **settings)
    with open_session(wanted, None, identity=RankIdentity()) as session:
        yield session


def encoder_of(folder: Path, policy: PrefixPolicy = "auto") -> Encoder:
    """The encoder of a folder that has a tokenizer, with or without a model."""
    return load_encoder(Checkpoint(kind="hf", path=folder, weight_files=(), tokenizer=folder), policy=policy)


def key_of(index: int) -> BlockKey:
    """The key of a numbered block."""
    return BlockKey("d-000000000000-00000", index)


def encoded(
    encoder: Encoder, blocks: Iterable[tuple[BlockKey, Sequence[str]]]
) -> Iterator[tuple[BlockKey, list[Encoded]]]:
    """Blocks of texts as the engine takes them, lazily."""
    for key, texts in blocks:
        yield key, encoder.encode(texts)


def score(
    session: Session,
    blocks: Sequence[Sequence[str]],
    order: Sequence[int] | None = None,
    *,
    memory: Memory | None = None,
) -> Any:
    """Results of each block in the order of ``blocks``, whatever the order in which they were fed and came back."""
    fed = ((key_of(index), session.encoder.encode(blocks[index])) for index in order or range(len(blocks)))
    found: dict[BlockKey, list[RecordResult]] = {}
    for key, results in score_blocks(fed, session.method, memory=memory):
        assert key not in found
        found[key] = results
    assert found.keys() == set(map(key_of, range(len(blocks))))
    return [found[key_of(index)] for index in range(len(blocks))]


def score_texts(session: Session, texts: Sequence[str]) -> list[RecordResult]:
    """Results of one block of texts."""
    results: list[RecordResult] = score(session, [texts])[0]
    return results


def poisoned(model: Path, folder: Path, token: str) -> Path:
    """A copy of a Llama-shaped model in which one number of a token's embedding is NaN."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][encoder_of(folder).tokenizer.token_to_id(token), 5] = math.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
