"""The curriculum of task augmentation: the better gradients agree, the more query sets are mixed (ALGORITHM §3).

The paper writes H = (1 − λ)·H_i + λ·H_j with λ ~ Beta(α, b·α). As b → 0 such a λ tends to 1, the largest deviation,
but the paper's text asks for the smallest. As in the authors' code, the Beta draw is the task's own share w = 1 − λ.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

START = -1.0  # s before the first step: no agreement, no deviation
NO_MIXING = 1e-6  # b·α below which the deviation is exactly 0

Mode = Literal["curriculum", "vanilla", "none"]


@dataclass
class Curriculum:
    """Tracks the similarity s of support and query gradients; b and the shares are functions of s.

    Attributes:
        mode: `curriculum`; `vanilla`: b = 1, Beta(α, α); `none`: no mixing (b still follows s, as the gates' target).
        alpha: α.
        m: the base of the curve of b over s.
        smoothing: the weight of the previous s in the new one; 0 in the paper, 0.5 in the released code.
        similarity: s.
    """

    mode: Mode = "curriculum"
    alpha: float = 1.0
    m: float = 2.0
    smoothing: float = 0.0
    similarity: float = START

    def follow(self, similarity: float) -> None:
        """Update s with the mean similarity of a step's tasks."""
        self.similarity = self.smoothing * self.similarity + (1 - self.smoothing) * similarity

    @property
    def b(self) -> float:
        """The b of a step: (m^((1+s)/2) − 1)/(m − 1), from 0 at s = −1 to 1 at s = 1 (paper, eq. of the curriculum)."""
        if self.mode == "vanilla":
            return 1.0
        agreement = (1 + min(max(self.similarity, -1.0), 1.0)) / 2
        return float((self.m**agreement - 1) / (self.m - 1))

    def share(self, chance: np.random.Generator) -> float:
        """Draw w ~ Beta(α, b·α), a task's own share of its mixed query set; λ = 1 − w is the deviation."""
        if self.mode == "none" or self.b * self.alpha < NO_MIXING:
            return 1.0
        return float(chance.beta(self.alpha, self.b * self.alpha))
