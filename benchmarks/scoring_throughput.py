"""Scoring speed against lm-evaluation-harness, a plain transformers loop and the machine's limit, in one run.

All contenders score the same notes with the same weights, dtype, threads and window, in turns, each in a process of its
own that does nothing else; medians of the turns count. Time runs from the first note to the last loss, tokenisation
included; loading is left out, and something is computed before the clock starts. What each contender does is told in
its module of ``benchmarks/throughput``. The losses are compared note by note, so the race is over equal work.

The harness (lm-eval 0.4.13) is installed once into ``WORK/harness``, with torch and transformers of this installation.
WORK holds note text afterwards: keep it as closed as the notes. Results go to ``WORK/results.json`` and ``.md``.

    python benchmarks/scoring_throughput.py --model DIR_OR_GGUF --work FOLDER --notes NOTES.parquet \
      --text transcription --department medical_specialty
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # what lies beside this folder is measured, not what is installed

from benchmarks.throughput.command import cli
from schemas.console import launch

if __name__ == "__main__":
    sys.exit(launch(cli, "python benchmarks/scoring_throughput.py"))
