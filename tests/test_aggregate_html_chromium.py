"""The page in a real browser: nothing is wider than the window."""

from __future__ import annotations

import html
import shutil
import subprocess
from pathlib import Path

import pytest

from aggregate.html import html_bytes
from tests.made_runs import MadeRecord, make_build, make_run, report_of

POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
MEASURE = """<body style="margin:0">
<iframe id="page" style="width:{width}px;height:30000px;border:0" srcdoc="{page}"></iframe>
<script>
document.getElementById("page").onload = (event) => {{
  const root = event.target.contentDocument.documentElement;
  document.title = "measured " + root.clientWidth + " " + root.scrollWidth;
}};
</script></body>"""


@pytest.mark.parametrize("width", [320, 400, 1280])
def test_page_never_scrolls_sideways(tmp_path: Path, width: int) -> None:
    """From a small phone to a desk, long names and wide tables stay inside the window."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    records = [
        MadeRecord("A", department="Department-of-" + "x" * 80, features=("a", "b"), loss=1e9, num_tokens=10**9),
        MadeRecord("B", department="Oncology", features=("c", None), loss=710.0),
    ]
    build = make_build(tmp_path / "corpus", records, features=["age_band", "sex"])
    report = report_of(build, make_run(tmp_path / "run", build), "department", "department,age_band,sex")
    content = html_bytes(report).decode()
    assert POLICY in content
    page = html.escape(content.replace(POLICY, ""))
    (tmp_path / "measure.html").write_text(MEASURE.format(width=width, page=page), encoding="utf-8")

    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", f"file://{tmp_path / 'measure.html'}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    assert f"<title>measured {width} {width}</title>" in shown
