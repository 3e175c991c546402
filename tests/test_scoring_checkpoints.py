"""A checkpoint that could run foreign code, or is not all there, is refused with the cure."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UsageError
from scoring.checkpoints import INDEX_FILE, locate
from tests.sessions import score_texts, scoring

NOTE = "Patient seen in clinic, no chest pain."


@pytest.fixture
def folder(tiny_llama: Path, tmp_path: Path) -> Path:
    """A model folder that may be changed."""
    return shutil.copytree(tiny_llama, tmp_path / "model")


def configure(folder: Path, **extra: Any) -> None:
    """Add entries to the config of a model."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **extra}))


def shard_weights(folder: Path) -> dict[str, str]:
    """Spread the weights over two files with an index; gives the index."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    weight_map = {name: f"model-0000{1 + (at >= 5)}-of-00002.safetensors" for at, name in enumerate(names)}
    for file_name in sorted(set(weight_map.values())):
        part = {name: weights[name] for name in names if weight_map[name] == file_name}
        save_file(part, folder / file_name, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def refusal(model: Path, tokenizer: Path | None = None) -> str:
    """The message with which a checkpoint is refused."""
    with pytest.raises(UsageError) as caught:
        locate(model, tokenizer)
    return str(caught.value)


def test_a_name_on_a_hub_is_refused(tmp_path: Path) -> None:
    """Nothing is fetched by name."""
    message = refusal(tmp_path / "meta-llama" / "Llama-3")

    assert "meta-llama/Llama-3: no such folder or file; download it first" in message


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".ckpt", ".pkl"])
def test_a_pickled_file_is_refused(suffix: str, tmp_path: Path) -> None:
    """Weights that can run code are not opened."""
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"\x80\x04.")

    assert "pickled weights can run code; convert them to safetensors" in refusal(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A file that is no GGUF is named as such."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"")

    assert "neither a Hugging Face folder nor a .gguf file" in refusal(path)


def test_a_folder_without_a_config_is_refused(folder: Path) -> None:
    """Without config.json the architecture is not known."""
    (folder / "config.json").unlink()

    assert "no config.json; name the folder that has it" in refusal(folder)


def test_an_adapter_is_refused(tmp_path: Path) -> None:
    """An adapter alone is no model."""
    (tmp_path / "adapter_config.json").write_text("{}")

    assert "merge the adapter into its base model" in refusal(tmp_path)


def test_code_of_the_checkpoint_is_never_run(folder: Path) -> None:
    """A config that brings its own Python is refused before anything is loaded."""
    configure(folder, auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})
    (folder / "modeling_evil.py").write_text("raise SystemExit('ran')\n")

    assert "needs Python code of its own (auto_map), which is never run" in refusal(folder)


@pytest.mark.parametrize(
    ("left", "expected"), [(None, "no weights"), ("pytorch_model.bin", "only pickled weights, which can run code")]
)
def test_a_folder_without_safetensors_is_refused(folder: Path, left: str | None, expected: str) -> None:
    """No weights, and pickled weights only, are told apart."""
    (folder / "model.safetensors").unlink()
    if left:
        (folder / left).write_bytes(b"\x80\x04.")

    assert f"{expected}; model.safetensors or an index" in refusal(folder)


def test_a_missing_part_of_the_weights_is_named(folder: Path) -> None:
    """An index that lists an absent file is refused before the loading starts."""
    shard_weights(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()

    assert "1 weight files are missing: model-00002-of-00002.safetensors" in refusal(folder)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/outside.safetensors", "sub/../../outside.safetensors"])
def test_weights_outside_the_folder_are_refused(folder: Path, name: str) -> None:
    """An index cannot reach beyond its own folder."""
    weight_map = shard_weights(folder)
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder.parent / "outside.safetensors")
    index = {"weight_map": {**weight_map, min(weight_map): name}}
    (folder / INDEX_FILE).write_text(json.dumps(index))

    assert "1 weight files are missing: outside.safetensors" in refusal(folder)


def test_the_digests_are_of_the_weights_that_are_loaded(folder: Path) -> None:
    """Beside a single file transformers ignores an index, so its shards are not what a result depends on."""
    whole = (folder / "model.safetensors").read_bytes()
    shard_weights(folder)
    (folder / "model.safetensors").write_bytes(whole)

    digests = locate(folder, None).weight_digests()

    assert digests.keys() == {"config.json", "model.safetensors"}
    assert digests["model.safetensors"] == hashlib.sha256(whole).hexdigest()


def test_an_adapter_beside_the_model_is_refused(folder: Path) -> None:
    """Transformers would load it too, and no digest would tell."""
    (folder / "adapter_config.json").write_text("{}")

    assert "merge it, or remove the adapter" in refusal(folder)


def test_a_config_may_hold_infinity(folder: Path) -> None:
    """Some architectures write Infinity, which their own program reads."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "limit": float("inf")}))

    assert locate(folder, None).kind == "hf"


@pytest.mark.parametrize("index", [{}, [], {"weight_map": []}, {"weight_map": {}}, {"weight_map": {"a": []}}])
def test_a_broken_index_is_refused(folder: Path, index: Any) -> None:
    """An index without a usable weight map is one error line."""
    (folder / "model.safetensors").unlink()
    (folder / INDEX_FILE).write_text(json.dumps(index))

    assert "no weight_map of file names; copy the checkpoint again" in refusal(folder)


def test_a_config_that_is_no_json_is_refused(folder: Path) -> None:
    """A damaged config is named and never quoted."""
    (folder / "config.json").write_text('{"secret":')

    with pytest.raises(UsageError, match=r"model/config\.json: not valid JSON") as caught:
        locate(folder, None)

    assert "secret" not in str(caught.value)


def test_a_missing_tokenizer_folder_is_refused(folder: Path) -> None:
    """--tokenizer names a folder."""
    assert "no such folder; name one with tokenizer.json" in refusal(folder, folder / "absent")


def test_weights_that_do_not_fit_are_refused(folder: Path) -> None:
    """A config that asks for another shape never gets random weights instead."""
    configure(folder, num_hidden_layers=3)

    with pytest.raises(UsageError, match="9 weights missing"), scoring(folder):
        pass


def test_an_unknown_architecture_is_one_line(folder: Path) -> None:
    """What transformers cannot load is a usage error with its type only."""
    configure(folder, model_type="never-heard-of", architectures=["NeverHeardOf"])

    with pytest.raises(UsageError, match=r"transformers could not load it \(\w+\); check that"), scoring(folder):
        pass


def test_digests_are_those_of_the_files(folder: Path) -> None:
    """Weights and tokenizer are known by the SHA-256 of each file that they depend on, by its name."""
    checkpoint = locate(folder, None)

    weights, tokenizer = checkpoint.weight_digests(), checkpoint.tokenizer_digests()

    assert weights.keys() == {"config.json", "model.safetensors"}
    assert tokenizer.keys() == {"tokenizer.json", "tokenizer_config.json"}
    for name, digest in {**weights, **tokenizer}.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()


def test_another_tokenizer_folder_is_the_one_digested(folder: Path, tmp_path: Path) -> None:
    """With --tokenizer the digests are that folder's."""
    other = tmp_path / "tokenizer"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")

    digests = locate(folder, other).tokenizer_digests()

    assert digests == {"tokenizer.json": hashlib.sha256(b"{}").hexdigest()}


def test_sharded_weights_score_as_whole_ones(tiny_llama: Path, folder: Path) -> None:
    """Weights in two files with an index give the same bits, and all three files are in the digests."""
    shard_weights(folder)
    with scoring(tiny_llama) as session:
        whole = score_texts(session, [NOTE])

    with scoring(folder) as session:
        sharded = score_texts(session, [NOTE])

    assert sharded == whole
    names = locate(folder, None).weight_digests().keys()
    assert names == {"config.json", INDEX_FILE, *(f"model-0000{part}-of-00002.safetensors" for part in (1, 2))}


def test_the_name_is_the_last_part_of_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People's label for a model is its folder, also when it is named as the current one."""
    monkeypatch.chdir(folder)

    assert locate(Path(), None).name == "model"
