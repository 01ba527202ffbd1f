"""What a soak counts: kills, cases, and what went wrong in them."""

import threading
from collections import Counter
from dataclasses import dataclass, field

WRONG = ("lost", "redone", "tracebacks", "hangs", "left running")


@dataclass
class Findings:
    """Counts of one part of the soak, by group, and a line for each problem; lanes share it."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, group: str, number: int = 1) -> int:
        """Count a kill or a case; return the number of all."""
        with self.lock:
            self.counts[group] += number
            return self.counts.total()

    def add(self, kind: str, what: str) -> None:
        """Count a problem, and keep and print the line that says what happened."""
        with self.lock:
            self.wrong[kind] += 1
            self.problems.append(f"{kind}: {what}")
            print(f"  {kind}: {what}", flush=True)
