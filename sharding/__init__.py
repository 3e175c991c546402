"""Stage 1: records in, stratified shards out, and every record accounted for."""
