"""The Markdown report holds the same content and cannot be broken by a value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aggregate.markdown import markdown_bytes
from aggregate.terminal import aligned, columns_of, report_lines
from aggregate.wording import metric
from schemas.report import Report
from tests.made_runs import MadeRecord, make_build, make_run, report_of

NASTY = "a|b\n# heading `code` <b> [x](http://e) \x1b[31m"


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """A report with names that Markdown and terminals would take for their own signs."""
    records = [MadeRecord("A", department=NASTY, loss=3.0), MadeRecord("B", department="科室", loss=710.0)]
    build = make_build(tmp_path / "corpus", records)
    return report_of(build, make_run(tmp_path / "run", build))


def test_every_table_row_has_as_many_cells_as_its_head(report: Report) -> None:
    """No value adds a cell or a line."""
    lines = markdown_bytes(report).decode().split("\n")

    width = 0
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        num_cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        if re.fullmatch(r"\|( -+:? \|)+", following):
            width = num_cells
        if line.startswith("|"):
            assert num_cells == width
    assert width


def test_a_value_is_never_markup(report: Report) -> None:
    """Headings are ours alone, and escape sequences are gone."""
    text = markdown_bytes(report).decode()

    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert not [line for line in headings if "heading" in line]
    assert "\x1b" not in text
    assert "<b>" not in re.sub(r"\\<", "", text)


def test_markdown_holds_what_the_page_holds(report: Report) -> None:
    """Figures, checks, terms and provenance all stand in the text."""
    text = markdown_bytes(report).decode().replace("\\", "")

    expected = [metric(report.whole.token_perplexity), *report.marks, report.provenance.inputs_digest]
    expected += [line.check for line in report.checks] + [line.meaning for line in report.method]
    assert [item for item in expected if item not in text] == []


def test_terminal_lines_are_aligned_and_cannot_be_forged(report: Report) -> None:
    """Columns line up for wide letters too, and no value starts a line or colours the terminal."""
    lines = report_lines(report, "report.html")

    assert not any(letter in line for line in lines for letter in "\n\x1b")
    assert any("infinite" in line for line in lines)
    rows = aligned([("科室", "1"), ("abcdef", "22")], numbers=(1,))
    assert {columns_of(row) for row in rows} == {10}
