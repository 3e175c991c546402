"""Forms of the strings that stand in documents, as regular expressions."""

from __future__ import annotations

SHA256 = r"^[0-9a-f]{64}$"
CODE = r"^d-[0-9a-f]{12}$"
SHARD_ID = r"^d-[0-9a-f]{12}-[0-9]{5}$"
_PATH_PART = r"[A-Za-z0-9](\.?[A-Za-z0-9_-])*"  # a dot stands between other characters only: no "..", no hidden file
RELATIVE_PATH = rf"^{_PATH_PART}(/{_PATH_PART})*$"
