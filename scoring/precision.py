"""What a precision is on a device: the type of the weights, how products are taken, and where torch can do it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from schemas.errors import UsageError
from scoring.devices import is_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from schemas.precision import Precision

DTYPES: dict[Precision, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "mixed": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
# NVIDIA Ampere is the first with TF32 products (CUDA C++ Programming Guide, compute capability 8.0).
TF32_CAPABILITY = (8, 0)


@contextlib.contextmanager
def products_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Products of a backbone as the precision has them; inside of another such context too."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "mixed"):
        if device.type != "cuda":
            yield
            return
        # Each lane says its own, whatever lane's context surrounds it.
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def require_precision(precision: Precision, device: torch.device) -> None:
    """The kind of device has the precision.

    Raises:
        UsageError: it has not, and why.
    """
    if precision == "tf32" and device.type != "cuda":
        raise UsageError(f"precision tf32: only CUDA devices have it, this is {device.type}; use fp32 or mixed")
    if precision == "tf32" and torch.cuda.get_device_capability(device) < TF32_CAPABILITY:
        raise UsageError("precision tf32: this GPU is older than compute capability 8.0; use fp32 or mixed")
    if precision == "fp64" and device.type == "mps":
        raise UsageError("precision fp64: MPS has no such type; use fp32, or --device cpu")


def require_computable(hidden: Callable[[Tensor], Tensor], precision: Precision, device: torch.device) -> None:
    """A backbone has every operation in the precision; torch lacks some of fp16 and of fp64.

    Raises:
        UsageError: it lacks one.
    """
    if precision not in ("fp16", "fp64"):
        return
    try:
        with torch.no_grad():
            hidden(torch.zeros((1, 2), dtype=torch.int64, device=device))
    except (NotImplementedError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise UsageError(
            f"precision {precision}: torch {torch.__version__} lacks an operation of this model in it on "
            f"{device.type}; use {'fp32' if precision == 'fp64' else 'bf16, or a CUDA device'}"
        ) from None


def copied(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """The same modules anew, on the same weights where they have the type already, else on rounded ones.

    Buffers stay as they are: transformers keeps positions and the like in fp32, whatever the weights are.
    """
    memo: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        is_kept = weight.dtype == dtype or not weight.is_floating_point()
        memo[id(weight)] = (
            weight if is_kept else torch.nn.Parameter(weight.detach().to(dtype), requires_grad=weight.requires_grad)
        )
    copy_of: PreTrainedModel = copy.deepcopy(model, memo)
    return copy_of
