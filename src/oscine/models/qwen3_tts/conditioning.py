"""The conditioning of a call: language, voice and instruction, the same for every piece of
a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import Qwen3TtsConfig
from oscine.models.qwen3_tts.prompt import (
    Embeddings,
    Prompt,
    PromptBuilder,
    PromptDraft,
    Reference,
    Rows,
    Tokenizer,
)
from oscine.models.qwen3_tts.sentences import TextPiece


class RowCounter:
    """Embeddings of width 1 that only count rows, so that a prompt's length is known before any
    lookup.

    `ids`: the text ids whose rows were requested, in order.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """Zeros [n, 1], one row for each id."""
        self.ids += ids
        return np.zeros((len(ids), 1), np.float32)

    def embed_code(self, code: int) -> Rows:
        """Zeros [1]."""
        return np.zeros(1, np.float32)

    def embed_reference(self, codes: NDArray[np.uint32]) -> Rows:
        """Zeros [R, 1], one row for each frame."""
        return np.zeros((len(codes), 1), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Conditioning:
    """Checked inputs that condition every prompt of a call.

    `streamed_text`: text is fed to the talker while it generates, not before.
    """

    language: str
    voice: str | None = None
    instruct: str | None = None
    reference: Reference | None = None
    streamed_text: bool = False

    def draft(self, config: Qwen3TtsConfig, tokenizer: Tokenizer, text: str) -> PromptDraft:
        """The prompt of one piece without its embeddings, which the engine's thread looks up.

        Raises UsageError for text, voice or language that the model does not support.
        """
        narrow = replace(config, talker=replace(config.talker, hidden_size=1))
        counter = RowCounter()
        bare = self
        if self.reference is not None:
            bare = replace(
                self, reference=replace(self.reference, speaker_embedding=np.zeros(1, np.float32))
            )
        counted = bare.prompt(PromptBuilder(narrow, tokenizer, counter), text)

        def build(embeddings: Embeddings) -> Prompt:
            return self.prompt(PromptBuilder(config, tokenizer, embeddings), text)

        return PromptDraft(len(counted.embeddings), len(counted.trailing_text), counter.ids, build)

    def max_frames(
        self, config: Qwen3TtsConfig, tokenizer: Tokenizer, pieces: Sequence[TextPiece]
    ) -> int:
        """Frames that fit into the model after the prompt of the longest piece, at least 1.

        Raises UsageError if none fits.
        """
        texts = [piece.text for piece in pieces] or ["a"]
        longest = max(texts, key=lambda text: len(text.encode()))
        prompt_length = self.draft(config, tokenizer, longest).length
        if prompt_length >= config.max_position_embeddings:
            raise UsageError(
                f"a prompt of {prompt_length} positions and a frame do not fit into the model's "
                f"{config.max_position_embeddings} positions; shorten the text, the reference or "
                "the instruction"
            )
        return config.max_position_embeddings - prompt_length

    def prompt(self, builder: PromptBuilder, text: str) -> Prompt:
        """Build the prompt of one piece of the text."""
        if self.reference is not None:
            return builder.clone(
                text, self.reference, self.language, streamed_text=self.streamed_text
            )
        if self.voice is not None:
            return builder.custom_voice(
                text, self.voice, self.language, self.instruct, streamed_text=self.streamed_text
            )
        return builder.voice_design(
            text, self.instruct, self.language, streamed_text=self.streamed_text
        )
