"""Placement and hashes are frozen: a change of either moves records between shards, and must be meant."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from sharding.config import ShardingSettings
from sharding.identity import RECORD, RecordKey
from sharding.layout import lay_out
from sharding.placement import Keys, placement_hashes
from sharding.records import code_name, stratum_hash, to_keys, to_records

GOLDEN = json.loads((Path(__file__).parent / "golden_placement.json").read_text(encoding="utf-8"))
KEY = RecordKey(bytes.fromhex("0f" * 32))
DEPARTMENTS = ("Cardiology", "心内科", "OB/GYN", "", None)
SETTINGS = ShardingSettings.model_validate(
    {
        "columns": {"id": "id", "text": "text", "department": "department", "features": {"sex": "sex"}},
        "seed": 20_190_517,
        "target_tokens": 5_000,
    }
)


def made_keys() -> Keys:
    """Keys of 1,000 made records of five departments."""
    numbers = range(1_000)
    columns = {
        "id": [f"{number:05d}" for number in numbers],
        "text": ["word " * (1 + number * 7919 % 97) for number in numbers],
        "department": [DEPARTMENTS[number * 31 % 7 % 5] for number in numbers],
        "feature.sex": [("female", "male", None)[number % 3] for number in numbers],
    }
    rows = pa.table({name: pa.array(values, pa.large_string()) for name, values in columns.items()})
    table = to_keys(to_records(rows, KEY, SETTINGS), SETTINGS)
    matrices = [
        np.frombuffer(b"".join(table.column(name).to_pylist()), dtype=np.uint8).reshape(-1, 16)
        for name in ("record_id", "row_digest")
    ]
    return Keys(*matrices, *(table.column(index).to_numpy() for index in range(2, 6)))


def test_every_record_goes_where_it_always_went() -> None:
    """1,000 ids of five departments, among them an empty and a null one, each in its frozen shard."""
    keys = made_keys()

    placed = lay_out(keys, placement_hashes(keys.record_ids, SETTINGS.seed), SETTINGS).placement

    names = [
        f"{code_name(department)}-{number:05d}"
        for department, number in zip(placed.departments.tolist(), placed.numbers.tolist(), strict=True)
    ]
    shards = {f"{number:05d}": names[shard] for number, shard in enumerate(placed.shards.tolist())}
    assert shards == GOLDEN["shards"]
    assert len({name.rpartition("-")[0] for name in names}) == len(DEPARTMENTS)


def test_public_hash_vectors_hold() -> None:
    """xxh3 of "abc" as its authors' library gives it, on any platform."""
    assert f"{xxhash.xxh3_64_intdigest(b'abc'):016x}" == GOLDEN["xxh3_64_abc"] == "78af5f94892f3950"
    assert xxhash.xxh3_128_hexdigest(b"abc") == GOLDEN["xxh3_128_abc"] == "06b05ab6733a618578af5f94892f3950"


def test_our_own_hashes_hold() -> None:
    """A keyed record id, a department's code and a stratum, for a key that everyone may know."""
    assert KEY.digest(RECORD, [b"00123"]).hex() == GOLDEN["record_id_00123"]
    assert [KEY.department_code(name) for name in DEPARTMENTS] == GOLDEN["department_codes"]
    assert f"{stratum_hash(('d-00000000000a', 'female', None, '')):016x}" == GOLDEN["stratum"]
