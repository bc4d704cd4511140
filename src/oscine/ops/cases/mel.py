"""Cases of log-mel features: powers over many decades, silence, ragged lengths."""

from __future__ import annotations

import math

import numpy as np

from oscine import ops
from oscine.ops.cases import Case, Values, noise, random_lengths


def log_mel_case(count: int, bins: int, bands: int, mel: ops.MelBank, name: str) -> Case:
    """Spectra whose power falls by 14 decades, and some that are zero."""

    def values(rng: np.random.Generator) -> Values:
        spectrum = noise(rng, count, 2 * bins) * np.float32(10) ** rng.uniform(-6, 1, (count, 1))
        spectrum[::7] = 0
        return {"spectrum": spectrum.astype(np.float32)}

    def weights(rng: np.random.Generator) -> Values:
        bank = np.maximum(noise(rng, bins, bands), 0)
        return {"mel": ops.MelBank(bank, mel.scale, mel.floor, mel.guard, mel.magnitude_epsilon)}

    return Case(
        f"log_mel {count}x{bins}x{bands}, {name}",
        values,
        lambda backend, x, w: backend.log_mel(x["spectrum"], w["mel"]),
        weights,
        limit=2e-6,
    )


def stats_case(batch: int, count: int, width: int, per: int = 1) -> Case:
    """A column of equal values, and deviations that are small beside the mean."""

    def values(rng: np.random.Generator) -> Values:
        x = noise(rng, batch * count, width) - 16
        x[:, 0] = np.float32(-16.6)
        return {"x": x, "frames": random_lengths(rng, batch, per * count)}

    return Case(
        f"feature_stats {batch}x{count}x{width}, {per} frames a row",
        values,
        lambda backend, x, w: backend.feature_stats(x["x"], ops.SeqLengths(x["frames"], per)),
        limit=1e-6,
    )


def normalise_case(batch: int, count: int, width: int, norm: ops.FeatureNorm) -> Case:
    """Values on both sides of the lowest one that is kept."""

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": 4 * noise(rng, batch * count, width),
            "stats": np.abs(noise(rng, batch, 3 * width)),
        }

    return Case(
        f"normalise_features {batch}x{count}x{width}, {norm}",
        values,
        lambda backend, x, w: backend.normalise_features(x["x"], x["stats"], norm),
        limit=1e-6,
    )


NOTHING = np.zeros((0, 0), np.float32)
WHISPER = ops.MelBank(NOTHING, 1 / math.log(10), floor=1e-10)
NEMO = ops.MelBank(NOTHING, guard=2.0**-24)
SPEAKER = ops.MelBank(NOTHING, floor=1e-5, magnitude_epsilon=1e-9)

CASES: tuple[Case, ...] = (
    log_mel_case(1, 4, 3, WHISPER, "log10"),
    log_mel_case(50, 204, 80, WHISPER, "log10"),
    log_mel_case(33, 260, 128, NEMO, "guard"),
    log_mel_case(10, 516, 130, SPEAKER, "magnitude"),
    stats_case(1, 1, 3),
    stats_case(2, 60, 80),
    stats_case(3, 333, 6, per=8),
    normalise_case(1, 3, 5, "peak"),
    normalise_case(3, 50, 80, "peak"),
    normalise_case(2, 50, 80, "standard"),
)
