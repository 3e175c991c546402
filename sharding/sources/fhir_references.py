"""References between FHIR resources as keys: ``Patient/17``, or ``Organization?system|value`` where an id is not known.

Sources: FHIR R4 and R5, "References" (2.3), "Bundle" for ``urn:uuid:``, "Conditional references", "Search: token".
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from sharding.sources.fhir_json import Resource, children, string

_LITERAL = re.compile(r"(?:.*/)?(?P<type>[A-Z][A-Za-z]+)/(?P<id>[^/?#|]+)(?:/_history/[^/?#]+)?")
_CONDITIONAL = re.compile(r"(?:.*/)?(?P<type>[A-Z][A-Za-z]+)\?(?P<query>.+)")
_URN = re.compile(r"urn:(?:uuid|oid):(?P<id>[^/?#|]+)", re.IGNORECASE)


def resource_key(resource_type: str, resource_id: str) -> str:
    """The key of a resource of the export."""
    return f"{resource_type}/{resource_id}"


def identifier_keys(resource: Resource, resource_type: str) -> list[str]:
    """Every key but its own by which a resource may be referred to: with its identifier's system, or without."""
    keys: dict[str, None] = {}
    for item in children(resource, "identifier"):
        value = string(item, "value")
        if value:
            keys[f"{resource_type}?{string(item, 'system') or ''}|{value}"] = None
            keys[f"{resource_type}?{value}"] = None
            if urn := _URN.fullmatch(value):
                keys[resource_key(resource_type, urn["id"])] = None
    return list(keys)


def reference_key(reference: Resource, wanted: str) -> str | None:
    """The key that a Reference stands for.

    Args:
        reference: As in the resource: ``reference`` (relative, absolute, a UUID, conditional), or ``identifier``.
        wanted: The type of resource that is looked for.

    Returns:
        None if it refers to nothing, to a contained resource, or to a resource of another type.
    """
    literal = string(reference, "reference")
    if literal and not literal.startswith("#"):
        return _literal_key(literal, wanted, said_type=string(reference, "type"))
    if string(reference, "type") in (None, wanted):
        keys = identifier_keys({"identifier": reference.get("identifier")}, wanted)
        return keys[0] if keys else None
    return None


def _literal_key(literal: str, wanted: str, *, said_type: str | None) -> str | None:
    if urn := _URN.fullmatch(literal):
        return resource_key(wanted, urn["id"]) if said_type in (None, wanted) else None
    if found := _LITERAL.fullmatch(literal):
        return resource_key(wanted, found["id"]) if found["type"] == wanted else None
    found = _CONDITIONAL.fullmatch(literal)
    if not found or found["type"] != wanted:
        return None
    pairs = [part.partition("=") for part in found["query"].split("&")]
    return next((f"{wanted}?{unquote(value)}" for name, _, value in pairs if name == "identifier" and value), None)
