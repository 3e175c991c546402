"""One tile: a fixed-shape forward pass, and the losses of its rows.

Legend: B rows, T tokens, D hidden size, N scored positions of the tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.errors import TemporaryError
from scoring.devices import is_out_of_memory
from scoring.losses import chunk_of, token_losses
from scoring.models import LoadedModel
from scoring.tiles import Row, TileFunction, TileMenu

FILLER_ID = 0


def make_tile_function(model: LoadedModel, menu: TileMenu) -> TileFunction:
    """The function that computes tiles; call it inside ``model.computing()``."""
    device = model.head.weight_VD.device

    def compute(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        tokens_BT = np.full((menu.rows_of(length), length), FILLER_ID, dtype=np.int64)
        for index, row in enumerate(rows):
            tokens_BT[index, : len(row.inputs)] = row.inputs
        # Padding is on the right of causal attention, so no row needs a mask to be blind to it.
        scored = [np.arange(row.num_context, len(row.inputs)) + index * length for index, row in enumerate(rows)]
        targets_N = torch.from_numpy(np.concatenate([row.targets for row in rows])).to(device)
        try:
            hidden_BTD = model.hidden(torch.from_numpy(tokens_BT).to(device))
            hidden_ND = hidden_BTD.flatten(0, 1).index_select(0, torch.from_numpy(np.concatenate(scored)).to(device))
            chunk = chunk_of(tokens_BT.size)
            nll_N: NDArray[np.float64] = token_losses(hidden_ND, model.head, targets_N, chunk=chunk).cpu().numpy()
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise TemporaryError(
                    f"tile of {tokens_BT.shape[0]} × {length} tokens: out of memory; lower --tile-tokens or "
                    "--max-length in a new run folder, or run on a larger device"
                ) from None
            if isinstance(error, torch.AcceleratorError):
                raise TemporaryError(
                    f"device {device.type}: lost in the midst of a tile; run the same command again, on another device "
                    "if it comes back no more"
                ) from None
            raise
        return np.split(nll_N, np.cumsum([len(row.targets) for row in rows])[:-1])

    return compute
