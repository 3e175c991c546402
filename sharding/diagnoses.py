"""The chapter of a diagnosis code by the public tabular lists; a code that no list has is none, never a guess.

Chapters and their ranges are those of the tabular lists: ICD-9-CM (CDC/NCHS, last edition 2011: chapters 1 to 17 and
the supplementary classifications V01-V91, E000-E030 and E800-E999); ICD-10 (WHO, edition 2019) and ICD-10-CM (CDC/NCHS,
since 2021), which share 22 chapters; where their last categories differ (D48 or D49, E89 or E90, K93 or K95, T88 or
T98) the longer range is taken.
"""

from __future__ import annotations

import re
from bisect import bisect_right

# First and last category of chapters 1, 2, ...
_ICD_9 = (
    *(("001", "139"), ("140", "239"), ("240", "279"), ("280", "289"), ("290", "319"), ("320", "389")),
    *(("390", "459"), ("460", "519"), ("520", "579"), ("580", "629"), ("630", "679"), ("680", "709")),
    *(("710", "739"), ("740", "759"), ("760", "779"), ("780", "799"), ("800", "999")),
)
# In the order of the alphabet, which is that of the chapters but for U, the last one.
_ICD_10 = (
    *(("A00", "B99", 1), ("C00", "D49", 2), ("D50", "D89", 3), ("E00", "E90", 4), ("F00", "F99", 5)),
    *(("G00", "G99", 6), ("H00", "H59", 7), ("H60", "H95", 8), ("I00", "I99", 9), ("J00", "J99", 10)),
    *(("K00", "K95", 11), ("L00", "L99", 12), ("M00", "M99", 13), ("N00", "N99", 14), ("O00", "O9A", 15)),
    *(("P00", "P96", 16), ("Q00", "Q99", 17), ("R00", "R99", 18), ("S00", "T98", 19), ("U00", "U99", 22)),
    *(("V00", "Y99", 20), ("Z00", "Z99", 21)),
)
_STARTS_9 = [first for first, _ in _ICD_9]
_STARTS_10 = [first for first, _, _ in _ICD_10]

# With or without the point: MIMIC and claims leave it out.
_CODE_9 = re.compile(r"(?P<category>[0-9]{3}|V[0-9]{2})(\.?[0-9]{1,2})?|(?P<external>E[0-9]{3})(\.?[0-9])?")
# ICD-10-CM has categories such as C4A and O9A, and up to four characters after the category; + and * are WHO's dagger
# and asterisk as they are typed.
_CODE_10 = re.compile(r"(?P<category>[A-Z][0-9][0-9AB])(\.?[0-9A-Z]{1,4})?[+*†]?")


def icd_chapter(code: str | None, version: int | str | None = None) -> str | None:
    """Chapter of a diagnosis.

    Args:
        code: Any case, with or without the point, with all leading zeros.
        version: 9 or 10, as a number or text; without one, the code must be possible in one of the two lists only.
            All codes are but those that begin with E or V, and of these many are.

    Returns:
        ``icd09-01`` to ``icd09-17``, ``icd09-E``, ``icd09-V``, ``icd10-01`` to ``icd10-22``; None where the code is
        in no chapter or the version is not known.
    """
    if code is None:
        return None
    plain = code.strip().upper()
    known = str(version).strip() if version is not None else _version_of(plain)
    if known == "9":
        return _chapter_9(plain)
    return _chapter_10(plain) if known == "10" else None


def _version_of(code: str) -> str | None:
    """The one list that has the code: "E8889" is E888.9 of ICD-9 and E88.89 of ICD-10, so it is in neither."""
    has_9, has_10 = _chapter_9(code) is not None, _chapter_10(code) is not None
    if has_9 == has_10:
        return None
    return "9" if has_9 else "10"


def _chapter_9(code: str) -> str | None:
    found = _CODE_9.fullmatch(code)
    if not found:
        return None
    if found["external"]:
        return "icd09-E" if not "E030" < found["external"] < "E800" else None
    category = found["category"]
    if category.startswith("V"):
        return "icd09-V" if "V01" <= category <= "V91" else None
    chapter = bisect_right(_STARTS_9, category)
    return f"icd09-{chapter:02d}" if chapter else None


def _chapter_10(code: str) -> str | None:
    found = _CODE_10.fullmatch(code)
    if not found:
        return None
    index = bisect_right(_STARTS_10, found["category"]) - 1
    _, last, chapter = _ICD_10[index]
    return f"icd10-{chapter:02d}" if found["category"] <= last else None
