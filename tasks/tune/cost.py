"""The cost of tuning by a method: trained parameters, time and memory."""

from dataclasses import dataclass
from pathlib import Path

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_PEAK = "VmHWM:"


@dataclass(frozen=True)
class Cost:
    """The cost of one seed with all its learning rates.

    Attributes:
        parameters: the numbers that one run trains.
        seconds: the time for one seed, if many are tuned together its share.
        memory_bytes: the peak memory, with the backbone's and that of runs tuned together: of the GPU, or of the
            process; None if the system does not say.
    """

    parameters: int
    seconds: float
    memory_bytes: int | None


class PeakMemory:
    """Measures the peak memory of a device, or of this process on a CPU, from its creation on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            _CLEAR.write_text("5")  # Linux: the peak is counted anew
        except OSError:
            self._device = torch.device("meta")

    def peak(self) -> int | None:
        """Return the bytes at the peak; None if the system does not say."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        if self._device.type == "meta":
            return None
        lines = [line.split() for line in _STATUS.read_text().splitlines() if line.startswith(_PEAK)]
        return int(lines[0][1]) * 1024 if lines else None
