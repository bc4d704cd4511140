"""Who speaks, and how: the same for every piece of a text."""

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
    """Rows of one zero each: as many as there would be, and nothing else of them.

    `ids`: of the text rows that were asked for.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """[n, 1]."""
        self.ids += ids
        return np.zeros((len(ids), 1), np.float32)

    def embed_code(self, code: int) -> Rows:
        """[1]."""
        return np.zeros(1, np.float32)

    def embed_reference(self, codes: NDArray[np.uint32]) -> Rows:
        """[R, 1]."""
        return np.zeros((len(codes), 1), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Conditioning:
    """What every prompt of a call is conditioned on, checked already.

    `streamed`: the text is heard while speaking.
    """

    language: str
    voice: str | None = None
    instruct: str | None = None
    reference: Reference | None = None
    streamed_text: bool = False

    def draft(self, config: Qwen3TtsConfig, tokenizer: Tokenizer, text: str) -> PromptDraft:
        """The prompt of one piece but for its rows, which the engine's thread looks up.

        Raises UsageError for what cannot be said.
        """
        narrow, blank = replace(config, talker=replace(config.talker, hidden_size=1)), RowCounter()
        bare = self
        if self.reference is not None:
            bare = replace(
                self, reference=replace(self.reference, speaker_embedding=np.zeros(1, np.float32))
            )
        found = bare.prompt(PromptBuilder(narrow, tokenizer, blank), text)

        def build(embeddings: Embeddings) -> Prompt:
            return self.prompt(PromptBuilder(config, tokenizer, embeddings), text)

        return PromptDraft(len(found.embeddings), len(found.trailing_text), blank.ids, build)

    def max_frames(
        self, config: Qwen3TtsConfig, tokenizer: Tokenizer, pieces: Sequence[TextPiece]
    ) -> int:
        """Frames that there is room for after the prompt of the longest piece, at least 1.

        Raises UsageError where there is none.
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
        """The prompt of one piece of the text."""
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
