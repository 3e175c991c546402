"""Public files as they were found: every record of them is accounted for, whatever the block size."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import PipelineError
from sharding.sources.formats import FORMATS
from sharding.sources.source import UTF8_BOM
from tests.builds import build

DIALOGUES = {"TrainingSet": 1_201, "ValidationSet": 100, "TestSet-1": 200, "TestSet-2": 200}


@pytest.mark.parametrize(("part", "num_records"), DIALOGUES.items())
def test_dialogues_are_whole_at_every_block_size(shared: Path, part: str, num_records: int) -> None:
    """Texts with CRLF and LF inside quotes: the same records, byte for byte, from 1 KiB to 64 MiB."""
    (path,) = (shared / "data" / "mts_dialog").glob(f"MTS-Dialog-{part}*.csv")
    source, columns = FORMATS["csv"], {"text": "dialogue"}

    texts = {
        block_bytes: [
            text
            for span in source.spans(path, block_bytes)
            for rows in source.read(path, span, columns=columns)
            for text in rows.table.column("text").to_pylist()
        ]
        for block_bytes in (1 << 10, 4_099, 1 << 17, 1 << 26)
    }

    assert [len(found) for found in texts.values()] == [num_records] * 4
    assert len(set(map(tuple, texts.values()))) == 1
    whole = path.read_bytes().removeprefix(UTF8_BOM).replace(b'""', b'"')
    assert all(text.encode() in whole for text in texts[1 << 26])


def test_dialogues_are_built_whole(shared: Path, tmp_path: Path, scheduler: str) -> None:
    """All four files make one build in which every record is kept."""
    paths = [
        next(path for path in (shared / "data" / "mts_dialog").glob(f"MTS-Dialog-{part}*.csv")) for part in DIALOGUES
    ]

    made = build(paths, tmp_path / "corpus", scheduler, columns={"text": "dialogue", "department": "section_header"})

    ledger = made.manifest.ledger
    assert sorted(file.num_read for file in made.manifest.inputs) == sorted(DIALOGUES.values())
    assert (ledger.num_read, ledger.num_kept + sum(ledger.duplicates.values())) == (1_701, 1_701)


@pytest.mark.parametrize("block_bytes", [50_021, 1 << 24])
def test_chinese_questions_are_read_in_their_encoding(
    shared: Path, tmp_path: Path, scheduler: str, block_bytes: int
) -> None:
    """A GBK file with a Chinese name and no id: 7,644 records, of which 378 repeat a whole row."""
    (path,) = (shared / "data" / "toyhom_zh").glob("*.csv")
    columns = {"text": "answer", "department": "department"}

    made = build([path], tmp_path / "corpus", scheduler, columns=columns, encoding="gb18030", block_bytes=block_bytes)

    ledger = made.manifest.ledger
    assert (ledger.num_read, ledger.num_kept, ledger.duplicates) == (7_644, 7_266, {"identical": 378})
    assert ledger.rejected == {}


def test_chinese_questions_without_their_encoding_fail_with_a_hint(
    shared: Path, tmp_path: Path, scheduler: str
) -> None:
    """Read as UTF-8 the file is refused, and the message names the setting."""
    (path,) = (shared / "data" / "toyhom_zh").glob("*.csv")
    columns = {"text": "answer", "department": "department"}

    with pytest.raises(PipelineError, match="encoding"):
        build([path], tmp_path / "corpus", scheduler, columns=columns, max_rejects="1%")
