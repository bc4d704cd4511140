"""Sizes of a Whisper checkpoint, named as in openai/whisper (whisper/model.py: ModelDimensions)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Read from the checkpoint or from tensor shapes; never defaulted over it."""

    n_mels: int
    n_audio_ctx: int  # encoder positions, 20 ms each
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int  # 0 where the checkpoint has no decoder
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    #: (layer, head) pairs whose cross-attention follows the audio; None where no list is known.
    alignment_heads: tuple[tuple[int, int], ...] | None = None
    #: Ids the checkpoint wants suppressed; None where it names none and they are to be computed.
    suppress_tokens: tuple[int, ...] | None = None
    begin_suppress_tokens: tuple[int, ...] | None = None
    max_initial_timestamp_index: int | None = None

    @property
    def window_frames(self) -> int:
        """Mel frames (10 ms) of one window: 3000 in released models."""
        return 2 * self.n_audio_ctx
