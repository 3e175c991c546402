"""The device a rank computes on, set up so that equal work gives equal bits."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import TYPE_CHECKING

from schemas.errors import UsageError

if TYPE_CHECKING:
    import torch

    from scoring.config import Device

# glibc's mallopt parameters, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_TOP_PAD_BYTES = 256 << 20
_MAX_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Stop glibc from giving big blocks back to the kernel after every layer.

    Page faults on fresh blocks took up to half the time of a CPU forward pass; a rank's peak memory is unchanged.

    Returns:
        Whether the C library took all three settings; others than glibc have none.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    options = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _MAX_INT), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return all(libc.mallopt(parameter, value) == 1 for parameter, value in options)


def release_freed_memory() -> None:
    """Give back what earlier work needed and later work in other threads may want; against ``keep_freed_memory``."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def choose_device(wanted: Device, *, local_rank: int) -> torch.device:
    """The rank's device; on a node with several GPUs each local rank has its own.

    Raises:
        UsageError: the device that was asked for is not there.
    """
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(kind for kind in there if there[kind]) if wanted == "auto" else wanted
    if not there[kind]:
        raise UsageError(f"device: {kind} is not available here; use --device cpu, or run on another node")
    if kind != "cuda":
        return torch.device(kind)
    if local_rank >= torch.cuda.device_count():
        raise UsageError(
            f"device: local rank {local_rank} has no GPU of its own, there are {torch.cuda.device_count()}"
        )
    return torch.device("cuda", local_rank)


def set_up(device: torch.device, num_threads: int) -> None:
    """Fix thread count, matmul precision and algorithms for this process.

    Raises:
        UsageError: the thread count cannot be set.
    """
    import torch

    num_cores = _num_cores()
    if num_threads > 4 * num_cores:
        raise UsageError(f"threads: {num_threads} on {num_cores} cores; set --threads-per-rank to {num_cores} or fewer")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS at its first use
    keep_freed_memory()
    torch.set_num_threads(num_threads)
    if torch.get_num_threads() != num_threads:
        raise UsageError(f"threads: asked for {num_threads}, got {torch.get_num_threads()}; set --threads-per-rank")
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # no buffer is read unset
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = False


def device_class(device: torch.device) -> str:
    """What must be the same for equal bits: the kind of device and its instruction set or model."""
    import torch

    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"cuda {torch.cuda.get_device_name(device)} sm{major}{minor}"
    if device.type == "mps":
        return f"mps {platform.machine()}"
    return f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch's CPU allocator says so in a plain ``RuntimeError``, by its own fixed words."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def default_threads(num_local_ranks: int) -> int:
    """The cores this process may use, shared out over the ranks of its node."""
    return max(1, _num_cores() // num_local_ranks)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
