"""The page is self-contained, safe to open, and says everything."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aggregate.chart import MAX_BARS, chart_of
from aggregate.html import html_bytes
from aggregate.wording import COMMAND, count, metric
from schemas.report import Report
from tests.made_runs import MadeRecord, make_build, make_run, report_of

NASTY = '<script>alert(1)</script><img src="http://evil.example/x" onerror=alert(1)>&"\'\u202e'
VOID = {"meta", "br", "rect", "line"}


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails on badly nested ones."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._stack: list[str] = []
        self.feed(content.decode("utf-8"))
        self.close()
        assert not self._stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an opened element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """An element closes the one opened last."""
        assert self._stack.pop() == tag

    def handle_data(self, data: str) -> None:
        """Gather text."""
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """A report whose department and features try to break out of the page."""
    records = [
        MadeRecord("A", department=NASTY, features=(NASTY,), loss=3.0, patient="p"),
        MadeRecord("B", department="plain", features=(None,), loss=710.0),
        MadeRecord("C", department="plain", features=("",), loss=None),
    ]
    build = make_build(tmp_path / "corpus", records, features=["kind"])
    return report_of(build, make_run(tmp_path / "run", build), "department", "kind,department")


def test_page_holds_no_script_and_no_request(report: Report) -> None:
    """No script, handler, link, image, frame, import or address, and a policy that would forbid them."""
    content = html_bytes(report)
    page = Page(content)

    tags = {tag for tag, _ in page.elements}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "a",
        "use",
        "foreignobject",
    }
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "href", "xlink:href", "srcset"}
    style = re.search(r"<style>(.*?)</style>", content.decode(), re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import|https?:", style[1])
    policies = [item["content"] for item in page.named("meta") if item.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_values_are_escaped_and_made_printable(report: Report) -> None:
    """Markup in a department or feature is shown as text; control characters are replaced."""
    content = html_bytes(report)

    assert b"<script>alert" not in content
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in content.decode()
    assert "\u202e" not in content.decode()


def test_page_can_be_read_by_machines_that_read_aloud(report: Report) -> None:
    """Language, captions, header scopes, unique ids and a described chart are all there."""
    page = Page(html_bytes(report))

    assert page.named("html")[0]["lang"] == "en"
    assert len(page.named("caption")) == len(page.named("table"))
    assert all(item.get("scope") in ("row", "col") for item in page.named("th"))
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    for chart in page.named("svg"):
        assert chart["role"] == "img"
        assert set(str(chart["aria-labelledby"]).split()) <= set(ids)
    assert len(page.named("svg")) == len(page.named("title")) - 1 == len(page.named("desc")) == 2


def test_page_shows_figures_counts_checks_ledger_and_provenance(report: Report) -> None:
    """Whatever stands in report.json for people stands on the page."""
    text = " ".join("".join(Page(html_bytes(report)).text).split())

    expected = [
        metric(report.whole.token_perplexity),
        metric(report.whole.nll_per_token),
        "infinite",
        "(null)",
        "(empty)",
    ]
    expected += [report.title, report.model, *report.marks, COMMAND, "rejected: null text", "skipped: no tokens"]
    expected += [line.check for line in report.checks] + [line.term for line in report.method]
    expected += [report.content.scores_digest, report.provenance.build_id, report.provenance.config_digest]
    assert [item for item in expected if item not in text] == []


def test_wide_tables_scroll_in_their_own_container(report: Report) -> None:
    """Every table lies in a scrolling region that the keyboard reaches, so the page itself never scrolls sideways."""
    content = html_bytes(report).decode()

    assert len(re.findall(r'<div class="scroll" role="region" tabindex="0" aria-label="[^"]+">\s*<table', content)) == (
        content.count("<table")
    )


def test_page_has_styles_for_dark_narrow_and_paper(report: Report) -> None:
    """The page adapts to a dark theme, a phone and a printer."""
    content = html_bytes(report)

    for query in (b"@media (prefers-color-scheme: dark)", b"@media (max-width: 40rem)", b"@media print"):
        assert query in content


def test_chart_widths_follow_the_values(tmp_path: Path) -> None:
    """The longest bar fills the width, others are in proportion, and a stratum without tokens has none."""
    records = [
        MadeRecord("A", department="a", loss=4.0),
        MadeRecord("B", department="b", loss=1.0),
        MadeRecord("C", department="c", loss=None),
    ]
    build = make_build(tmp_path / "corpus", records)

    chart = chart_of(report_of(build, make_run(tmp_path / "run", build)).crossings[0])

    assert chart is not None
    assert [(bar.label, bar.width) for bar in chart.bars] == [("a", 100.0), ("b", 25.0)]
    assert (chart.average, chart.num_left_out) == (62.5, 1)


def test_chart_of_many_strata_is_cut_and_says_so(tmp_path: Path) -> None:
    """Beyond sixty strata the table goes on alone, and the figure names how many it leaves out."""
    records = [MadeRecord(f"n{index}", features=(f"{index:03d}",)) for index in range(MAX_BARS + 3)]
    build = make_build(tmp_path / "corpus", records, features=["kind"])
    report = report_of(build, make_run(tmp_path / "run", build), "kind")

    page = html_bytes(report).decode()

    assert page.count('class="bar"') == MAX_BARS
    assert "3 strata are in the table only" in page
    assert page.count('<th scope="row">0') == MAX_BARS + 3
    assert count(MAX_BARS + 3) in page
