"""Which families of files are known. A new one is one more line here.

A family is imported when it is asked for: their joins need libraries that a build of plain tables does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from sharding.sources.adapter import ONLY_TEXT, Adapter, Contents
from sharding.sources.formats import FORMATS
from sharding.sources.source import Source

AUTO = "auto"
TABLE = "table"


class Families(Mapping[str, Adapter]):
    """Adapters by the name of their family, each the ``ADAPTER`` of a module of this package."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Adapter:
        if name not in self._names:
            raise KeyError(name)
        adapter: Adapter = import_module(f"sharding.sources.{name}").ADAPTER
        return adapter

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


ADAPTERS = Families("fhir", "mimic3", "mimic4", "omop")
SOURCES = (AUTO, TABLE, *ADAPTERS)


def source_of(file_format: str, family: str, use: str) -> Source:
    """How to read a file of a format for a use in a family of files, or in none (``table``)."""
    file_source = FORMATS[file_format]
    return ADAPTERS[family].source(use, file_source) if family in ADAPTERS else file_source


def contents_of(family: str, use: str) -> Contents:
    """What becomes of a file of a use in a family of files, or in none (``table``)."""
    return ADAPTERS[family].contents(use) if family in ADAPTERS else ONLY_TEXT
