"""One line of a FHIR export as a resource, and its values as far as they have the shape that the specification says.

A value of the wrong type counts as absent, so that one odd field costs a feature and not the note.
"""

from __future__ import annotations

import re
from typing import Any

from sharding.sources.fhir_types import RESOURCE_TYPES
from sharding.sources.source import MALFORMED, UNDECODABLE
from sharding.sources.strict_json import strict_object

NOT_A_NOTE = "not_a_note"
RESOURCE_TYPE = "resourceType"

Resource = dict[str, Any]

_LEADING_TYPE = re.compile(rb'\s*\{\s*"resourceType"\s*:\s*"([A-Za-z]+)"')


def leading_type(line: bytes) -> str | None:
    """The type of a resource that says it first, as servers write it: known without parsing the line."""
    found = _LEADING_TYPE.match(line)
    return found[1].decode("ascii") if found else None


def resource_of(line: bytes) -> Resource | str:
    """The resource of a line, or the reason why it is none: undecodable, malformed, or of no type that FHIR has."""
    try:
        resource = strict_object(line)
    except UnicodeDecodeError:
        return UNDECODABLE
    except (ValueError, RecursionError):
        return MALFORMED
    return resource if string(resource, RESOURCE_TYPE) in RESOURCE_TYPES else NOT_A_NOTE


def string(parent: Resource, name: str) -> str | None:
    """A string of an object; FHIR has no empty or blank strings, so one counts as absent."""
    value = parent.get(name)
    return value if isinstance(value, str) and value.strip() else None


def child(parent: Resource, name: str) -> Resource:
    """An object of an object; empty if absent."""
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def children(parent: Resource, name: str) -> list[Resource]:
    """The objects of a list; one object that is in no list counts as a list of it."""
    value = parent.get(name)
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def concept_name(concept: Resource) -> str | None:
    """What a CodeableConcept is called: its text, else the first display, else the first code."""
    codings = children(concept, "coding")
    names = [string(concept, "text"), *(string(item, "display") for item in codings)]
    return next((name for name in [*names, *(string(item, "code") for item in codings)] if name), None)


def coding_name(coding: Resource) -> str | None:
    """What a Coding is called: its display, else its code."""
    return string(coding, "display") or string(coding, "code")
