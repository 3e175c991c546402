"""Stage 2: the exact loss of every record, written as sealed partials, one per block."""
