"""The parts of ``benchmarks/scoring_throughput.py``: what is measured, who is measured, and what follows from it."""
