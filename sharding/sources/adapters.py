"""Which families of files are known. A new one is one more line here."""

from __future__ import annotations

from sharding.sources import mimic3, mimic4, omop
from sharding.sources.adapter import ONLY_TEXT, Adapter, Contents
from sharding.sources.fhir import FhirAdapter
from sharding.sources.formats import FORMATS
from sharding.sources.source import Source

AUTO = "auto"
TABLE = "table"
ADAPTERS: dict[str, Adapter] = {
    "fhir": FhirAdapter(),
    "mimic3": mimic3.ADAPTER,
    "mimic4": mimic4.ADAPTER,
    "omop": omop.ADAPTER,
}
SOURCES = (AUTO, TABLE, *ADAPTERS)


def source_of(file_format: str, family: str, use: str) -> Source:
    """How to read a file of a format for a use in a family of files, or in none (``table``)."""
    file_source = FORMATS[file_format]
    return ADAPTERS[family].source(use, file_source) if family in ADAPTERS else file_source


def contents_of(family: str, use: str) -> Contents:
    """What becomes of a file of a use in a family of files, or in none (``table``)."""
    return ADAPTERS[family].contents(use) if family in ADAPTERS else ONLY_TEXT
