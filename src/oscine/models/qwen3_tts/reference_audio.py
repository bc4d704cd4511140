"""Checks the samples of a reference recording before they are encoded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.errors import NonFiniteError, UsageError
from oscine.types import Audio, Samples


def check_reference_audio(samples: NDArray[Any] | Audio, rate: int, min_samples: int) -> Samples:
    """Mono samples at `rate` hertz as float32 [n], n at least `min_samples`.

    A plain array is assumed to have that rate. Raises UsageError for another rate or shape,
    integers or too few samples; NonFiniteError for NaN or infinity.
    """
    if isinstance(samples, Audio):
        if samples.rate != rate:
            raise UsageError(
                f"reference audio must have {rate} samples a second, not {samples.rate}; "
                "resample it first"
            )
        samples = samples.samples
    samples = np.asarray(samples)
    if samples.ndim != 1:
        raise UsageError(
            f"reference audio must be mono samples [n], not {list(samples.shape)}; "
            "average its channels first"
        )
    if samples.dtype.kind != "f":
        raise UsageError(
            f"reference audio must be floating-point numbers in [-1, 1], not {samples.dtype}"
        )
    if len(samples) < min_samples:
        raise UsageError(
            f"reference audio has {len(samples)} samples; it needs {min_samples} or more, "
            f"{min_samples / rate:.2g} s"
        )
    if not np.isfinite(samples).all():
        raise NonFiniteError("reference audio has samples that are NaN or infinite")
    return np.ascontiguousarray(samples, np.float32)
