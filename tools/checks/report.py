"""Lines of a comparison: what was compared, how far apart it is, and whether that is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from oscine.probe import probing

COSINE = 0.99999  # least likeness of a GPU's stage to the golden
MATRIX = 3e-3  # of the largest value: ops.check.MATRIX_LIMIT, for a whole stage


@contextmanager
def stages() -> Iterator[dict[str, np.ndarray]]:
    """Every stage that networks compute inside, by name; what several calls give is joined."""
    parts: dict[str, list[np.ndarray]] = {}
    found: dict[str, np.ndarray] = {}
    with probing(lambda name, x: parts.setdefault(name, []).append(x)):
        yield found
    found |= {name: np.concatenate(pieces) for name, pieces in parts.items()}


class Report:
    """Prints each comparison as it is made and remembers the misses.

    `cosines`: also demand that whole arrays point the same way, as the equality standard for GPUs
    does. `matrix`: differences up to MATRIX of the largest value are allowed, as where products of
    float16 weights go to matrix units.
    """

    def __init__(self, cosines: bool, matrix: bool = False) -> None:
        self.cosines, self.matrix = cosines, matrix
        self.compared = 0
        self.missed: list[str] = []
        self.later: list[str] = []
        self.case = ""

    def begin(self, case: str, about: str) -> None:
        self.case = case
        print(f"{case}: {about}")

    def array(self, name: str, got: Any, want: Any, limit: float) -> None:
        """Largest absolute difference of two arrays of one shape, with its limit."""
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        if got.shape != want.shape:
            self._line(name, False, f"shape {list(got.shape)}, golden {list(want.shape)}")
            return
        if self.matrix:
            limit = max(limit, MATRIX * float(np.abs(want).max(initial=0.0)))
        difference = float(np.abs(got - want).max(initial=0.0))
        good = difference <= limit  # false for NaN
        text = f"max difference {difference:.2e}, limit {limit:.1e}"
        if self.cosines and want.size > 1:
            scale = float(np.linalg.norm(got) * np.linalg.norm(want))
            cosine = float(np.vdot(got, want)) / scale if scale else 1.0
            good = good and cosine >= COSINE
            text += f", cosine {cosine:.7f}"
        self._line(name, good, text)

    def same(self, name: str, got: Any, want: Any) -> None:
        """Equality of token sequences, texts or ids."""
        if got == want:
            size = f"{len(want)} equal" if isinstance(want, Sequence | dict) else "equal"
            self._line(name, True, size)
            return
        at = (
            next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), -1)
            if (isinstance(got, list | tuple) and isinstance(want, list | tuple))
            else -1
        )
        where = f" (first at {at})" if at >= 0 else ""
        self._line(name, False, f"differs{where}: {str(got)[:120]}, golden {str(want)[:120]}")

    def fail(self, name: str, problem: str) -> None:
        """Something that could not be compared at all."""
        self._line(name, False, problem)

    def not_yet(self, names: Iterable[str]) -> None:
        """Goldens of features that are not built: listed, not failed."""
        for name in names:
            self.later.append(f"{self.case}/{name}")
            print(f"  not yet  {name}")

    def finish(self) -> int:
        """Print the sums; 1 if anything missed or nothing could be compared, else 0."""
        if self.later:
            print(f"not yet compared, {len(self.later)}: {', '.join(self.later)}")
        if self.missed:
            print(f"MISSED {len(self.missed)} of {self.compared}: {', '.join(self.missed)}")
            return 1
        print(f"all {self.compared} comparisons hold")
        return 0

    def _line(self, name: str, good: bool, text: str) -> None:
        self.compared += 1
        if not good:
            self.missed.append(f"{self.case}/{name}")
        print(f"  {'ok      ' if good else 'MISS    '} {name}: {text}")
