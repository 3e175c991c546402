"""What a case feature is of its column: the text as it is, or one of a few functions of it.

``NAME=year(COLUMN)`` is short for a column and a function; whatever looks like a function is one, so a column whose own
name looks so is given as a table in the TOML file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import Field, field_validator, model_validator

from schemas.settings import Settings
from sharding.diagnoses import icd_chapter
from sharding.features import age_band_of, sex_of, year_of

AS_IT_IS = "text"
FUNCTIONS: dict[str, Callable[[str], str | None]] = {
    "age_band": age_band_of,
    "icd9_chapter": partial(icd_chapter, version=9),
    "icd10_chapter": partial(icd_chapter, version=10),
    "icd_chapter": icd_chapter,
    "sex": sex_of,
    "year": year_of,
}

_KNOWN = ", ".join(FUNCTIONS)
_CALL = re.compile(r"(?P<function>[a-z][a-z0-9_]*)\((?P<column>.*)\)", re.DOTALL)
_UNCLOSED = re.compile(rf"({'|'.join(FUNCTIONS)})\(.*", re.DOTALL)


class FeatureColumn(Settings):
    """Where a case feature comes from; in settings also as text, such as ``age_band(AGE)``.

    Attributes:
        column: Of the source.
        function: ``text`` for the column as it is, or one of ``FUNCTIONS``; called ``as`` in settings.
    """

    column: str = Field(min_length=1)
    function: str = Field(default=AS_IT_IS, alias="as")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _CALL.fullmatch(value)
        if not found:
            if _UNCLOSED.fullmatch(value):
                raise ValueError("a bracket is not closed; write NAME=FUNCTION(COLUMN)")
            return {"column": value}
        if found["function"] not in FUNCTIONS:
            raise ValueError(
                f"no function of this name; known are {_KNOWN}; a column whose name looks so is given in the TOML "
                'file as { column = "…", as = "text" }'
            )
        if not found["column"] or _CALL.fullmatch(found["column"]):
            raise ValueError("a function takes one column; write NAME=FUNCTION(COLUMN)")
        return {"column": found["column"], "as": found["function"]}

    @field_validator("function")
    @classmethod
    def _known_function(cls, name: str) -> str:
        if name != AS_IT_IS and name not in FUNCTIONS:
            raise ValueError(f"known are {AS_IT_IS}, {_KNOWN}")
        return name
