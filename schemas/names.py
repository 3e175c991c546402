"""Names of departments, which are nobody's to read but whose the department's losses are: sealed under that key."""

from __future__ import annotations

import base64
import binascii
import json

from schemas.ciphers import derived_key, opened_content, sealed_content
from schemas.errors import IntegrityError
from schemas.manifests import DepartmentView


def sealed_name(name: str | None, results_key: bytes, *, build_id: str, code: str) -> str:
    """A name as it stands in a view: base64, the same for the same key."""
    key = derived_key(results_key, "name", build_id, code)
    return base64.b64encode(sealed_content(json.dumps(name).encode(), key, bound_to=code.encode())).decode()


def opened_name(view: DepartmentView, results_key: bytes) -> str | None:
    """The name in a view of an encrypted build.

    Raises:
        IntegrityError: it is absent, or not under this key.
    """
    where = f"{view.code} sealed_name"
    key = derived_key(results_key, "name", view.build_id, view.code)
    try:
        content = base64.b64decode(view.sealed_name or "", validate=True)
    except binascii.Error:
        raise IntegrityError(f"{where}: no base64; restore the view") from None
    name = json.loads(opened_content(content, key, bound_to=view.code.encode(), where=where))
    return None if name is None else str(name)
