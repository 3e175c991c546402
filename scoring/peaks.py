"""How much memory work takes at its highest, beyond what the process held before.

On Linux the kernel keeps the highest resident size of a process and forgets it on demand (proc(5), ``clear_refs``);
on CUDA devices torch's allocator does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import UsageError
from scoring.devices import release_freed_memory

if TYPE_CHECKING:
    import torch

FORGET_THE_HIGHEST = "5"
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What tiles may take on a device, in bytes."""

    num_bytes: int
    device: torch.device

    def measure(self) -> PeakMeter:
        """A meter that starts now; what was freed before is given back first.

        Raises:
            UsageError: this kind of device or system cannot be measured.
        """
        import torch

        release_freed_memory()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return PeakMeter(self, torch.cuda.memory_allocated(self.device))
        try:
            _CLEAR.write_text(FORGET_THE_HIGHEST, encoding="ascii")
        except OSError:
            raise UsageError(
                "memory_budget: this system does not tell a process' highest memory; leave it out"
            ) from None
        return PeakMeter(self, _kibibytes("VmRSS") << 10)


@dataclass(frozen=True, slots=True)
class PeakMeter:
    """Compares the highest memory since its start with what was held then."""

    limit: MemoryLimit
    num_held: int

    def num_used(self) -> int:
        """Bytes beyond what was held."""
        import torch

        if self.limit.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.limit.device) - self.num_held
        return (_kibibytes("VmHWM") << 10) - self.num_held

    @property
    def is_over(self) -> bool:
        """Whether the limit was passed."""
        return self.num_used() > self.limit.num_bytes


def _kibibytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
