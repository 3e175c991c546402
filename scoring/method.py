"""How token ids become losses: windows, and the lanes in which records of each length are computed."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.precision import REDUCED, Precision
from scoring.split import Split
from scoring.tiles import TileFunction, TileMenu
from scoring.tokens import Encoded


@dataclass(frozen=True, slots=True)
class Windowing:
    """Length and step of windows, in positions."""

    max_length: int
    stride: int


@dataclass(frozen=True, slots=True)
class Lane:
    """How the records of one range of lengths are computed.

    Attributes:
        menu: Tile shapes.
        compute: Runs one tile.
        precision: Of the tiles.
        up_to: Most positions of a record, prefix included, context not; None for no limit.
    """

    menu: TileMenu
    compute: TileFunction
    precision: Precision = "fp32"
    up_to: int | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """How token ids become losses.

    Attributes:
        windowing: How records are cut.
        lanes: By ascending length; the last one takes any.
        check: What sampled records of reduced lanes are computed by too; None for no check.
        is_per_block: Rows share tiles with rows of their own block only, in the order of its records: on a device where
            neighbours change a row's bits these then follow from the block alone, on any rank and after any resume.
        split: Splits each record's loss, whose tokens then have classes; none leaves it whole.
    """

    windowing: Windowing
    lanes: tuple[Lane, ...]
    is_per_block: bool = False
    check: Lane | None = None
    split: Split | None = None

    @property
    def all_lanes(self) -> tuple[Lane, ...]:
        """The lanes, and that of the check."""
        return (*self.lanes, *([self.check] if self.check else []))

    def is_checked(self, record: Encoded) -> bool:
        """Whether a record is computed by the check's lane too."""
        lane = self.lanes[self.lane_of(record.num_own)]
        return record.is_sampled and self.check is not None and record.num_own > 1 and lane.precision in REDUCED

    def lane_of(self, num_positions: int) -> int:
        """Number of the lane that computes a record of so many positions, whatever it is scored with."""
        limits = (lane.up_to for lane in self.lanes)
        return next(at for at, up_to in enumerate(limits) if up_to is None or num_positions <= up_to)
