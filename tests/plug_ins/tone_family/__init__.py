"""A family as another package adds it: models that write down the tone of each second of audio."""

from __future__ import annotations

from typing import Any

from oscine.family import Family, Network, Release


def network() -> Network[Any, Any]:
    from tone_family.network import NETWORK

    return NETWORK


FAMILY = Family(
    name="tone",
    title="Tone",
    task="transcribe",
    checkpoint_signature="probes of tones (model_type tone)",
    matches=lambda checkpoint: checkpoint.config.get("model_type") == "tone",
    network=network,
    models={"tone-tiny": Release("made-up/tone-tiny", 1, "tones")},
    is_complete=lambda folder, config: config.get("model_type") == "tone",
)
