"""Whose a stay is: rows of side tables that name a patient speak of that patient only.

Rows that name nobody speak of whoever was there, and are asked after those that name the note's own patient. A note
that names nobody is taken for one of the stay's patient, where the stay has only one.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from sharding.sources.joins import answers, lookup
from sharding.sources.keyed import KEY

OWNERS = "owners"
# Keys of a note's stay among the rows that name its patient, and among those that name nobody.
OWN, ANYONE = "own", "anyone"
KEYS = (OWN, ANYONE)
IS_FOREIGN = "is_foreign"


def stay_key(stay: str, patient: str) -> pl.Expr:
    """Key of a stay and a patient, of nobody where the patient is null; null where the stay is.

    The stay's length goes first, so that no two pairs have one key.
    """
    return _key(stay, pl.col(patient).fill_null(""))


def owner_rows(rows: pl.DataFrame, *, stay: str, patient: str) -> pl.DataFrame:
    """What side rows tell of whose a stay is: the patients of a stay, under its key and under that of both."""
    named = rows.select(stay, patient).drop_nulls().unique()
    owner = pl.col(patient).alias("owner")
    anyone, own = _key(stay, pl.lit("")), stay_key(stay, patient)
    return pl.concat([named.select(own.alias(KEY), owner), named.select(anyone.alias(KEY), owner)])


def owner_table(rows: pl.DataFrame) -> pa.Table:
    """A lookup of all pairs of a stay and a patient, and for each stay of its patient if it has only one."""
    num = pl.col("owner").n_unique().cast(pl.Int32)
    owner = pl.when(num == 1).then(pl.col("owner").min())
    return lookup(rows.group_by(KEY).agg(owner.alias("owner"), num.alias("num")))


def keys_of(notes: pl.DataFrame, owners: pa.Table, *, stay: str, patient: str) -> pl.DataFrame:
    """Under which keys the stay of each note is to be looked up, in the notes' order.

    Args:
        notes: With their stay and patient; null where they name none.
        owners: As ``owner_table`` makes it.
        stay: Column of the stays.
        patient: Column of the patients.

    Returns:
        ``OWN`` and ``ANYONE``, and ``IS_FOREIGN`` where side rows give the stay to other patients only; of such a stay
        nothing is to be known, so that its keys are null.
    """
    anyone = notes.select(_key(stay, pl.lit(""))).to_series()
    known = answers(anyone, owners)
    whose = notes.select(stay, pl.coalesce(patient, known["owner"]).alias(patient))
    own = whose.select(stay_key(stay, patient)).to_series()
    is_unnamed = notes[patient].is_not_null() & answers(own, owners)["num"].is_null()
    keys = pl.DataFrame({OWN: own, ANYONE: anyone, IS_FOREIGN: known["num"].is_not_null() & is_unnamed})
    return keys.with_columns(pl.when(~pl.col(IS_FOREIGN)).then(name).alias(name) for name in KEYS)


def _key(stay: str, patient: pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.col(stay).str.len_bytes(), pl.lit(":"), pl.col(stay), patient)
