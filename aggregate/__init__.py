"""Stage 3: verify a run against its build, pool exactly, and write the report."""
