"""Whose a stay is: rows of side tables that name a patient speak of that patient only.

Rows that name nobody speak of whoever was there, and are asked after those that name the note's own patient. A note
that names nobody is taken for one of the stay's patient, where the stay has only one.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def owner_lookup(tables: Sequence[pl.DataFrame], *, stay: str, patient: str) -> pa.Table:
    """All pairs of a stay and a patient that side rows name, and for each stay its patient if it has only one."""
    named = pl.concat([table.select(stay, patient) for table in tables]).drop_nulls().unique()
    pairs = named.select(stay_key(stay, patient).alias(KEY), pl.col(patient).alias("owner"), pl.lit(1).alias("num"))
    whole = named.group_by(stay).agg(pl.col(patient).min().alias("owner"), pl.len().cast(pl.Int32).alias("num"))
    only = pl.when(pl.col("num") == 1).then("owner").alias("owner")
    return lookup(pl.concat([pairs, whole.select(_key(stay, pl.lit("")).alias(KEY), only, "num")]))


def keys_of(notes: pl.DataFrame, owners: pa.Table, *, stay: str, patient: str) -> pl.DataFrame:
    """Under which keys the stay of each note is to be looked up, in the notes' order.

    Args:
        notes: With their stay and patient; null where they name none.
        owners: As ``owner_lookup`` makes it.
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
