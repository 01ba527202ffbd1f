"""The devices that a cost can be estimated for without having them: memory, dense rates and bandwidth by data sheet."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from storage.errors import InputError

EFFICIENCY = {"bfloat16": 0.35, "float32": 0.5}
"""The share of the dense rate that a run reaches, assumed: rows are short, and attention that is differentiated twice
uses the plain kernel."""


@dataclass(frozen=True)
class Device:
    """A GPU: memory in GB, dense rates in TFLOP/s (None: the device has no such unit), and bandwidth in GB/s.

    `float16` is listed for comparison; the program computes in bfloat16 or float32.
    """

    name: str
    memory_gb: float
    bfloat16: float | None
    float16: float
    float32: float
    bandwidth: float

    def precision(self, wanted: str) -> str:
        """Return the precision that `auto` or a name means on this device."""
        if wanted == "auto":
            return "bfloat16" if self.bfloat16 else "float32"
        return wanted

    def rate(self, precision: str) -> float:
        """Return the operations per second that a run is expected to reach."""
        if precision == "bfloat16":  # without units for it, the products are converted and run in float32
            return (self.bfloat16 or 0.5 * self.float32) * EFFICIENCY["bfloat16"] * 1e12
        return self.float32 * EFFICIENCY["float32"] * 1e12


_ALL = (
    Device("A100-40", 40, 312, 312, 19.5, 1555),
    Device("A100-80", 80, 312, 312, 19.5, 2039),
    Device("H100", 80, 989, 989, 66.9, 3350),
    Device("H200", 141, 989, 989, 66.9, 4800),
    Device("L40S", 48, 362, 362, 91.6, 864),
    Device("A6000", 48, 155, 155, 38.7, 768),
    Device("A10", 24, 125, 125, 31.2, 600),
    Device("RTX-4090", 24, 165, 165, 82.6, 1008),
    Device("RTX-3090", 24, 71, 71, 35.6, 936),
    Device("L4", 24, 121, 121, 30.3, 300),
    Device("V100", 32, None, 125, 15.7, 900),
    Device("T4", 16, None, 65, 8.1, 320),
)
DEVICES: Mapping[str, Device] = MappingProxyType({device.name: device for device in _ALL})


def device_named(name: str) -> Device:
    """Return a device by its name; case, spaces and hyphens do not matter. Raise InputError if there is none."""
    keys = {_key(known): device for known, device in DEVICES.items()}
    if _key(name) in keys:
        return keys[_key(name)]
    near = get_close_matches(_key(name), keys, n=1, cutoff=0.5)
    hint = f"; did you mean {keys[near[0]].name}?" if near else ""
    raise InputError(f"--device {name}: not in the table ({', '.join(DEVICES)}){hint}")


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("gb")
