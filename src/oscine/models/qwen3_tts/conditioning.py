"""Who speaks, and how: the same for every piece of a text."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.models.qwen3_tts.prompt import Prompt, PromptBuilder, Reference


@dataclass(frozen=True, slots=True, eq=False)
class Conditioning:
    """What every prompt of a call is conditioned on, checked already.

    `streamed`: the text is heard while speaking; None: as upstream has it.
    """

    language: str
    voice: str | None = None
    instruct: str | None = None
    reference: Reference | None = None
    streamed: bool | None = None

    def prompt(self, builder: PromptBuilder, text: str) -> Prompt:
        """The prompt of one piece of the text."""
        if self.reference is not None:
            streamed = True if self.streamed is None else self.streamed
            return builder.clone(text, self.reference, self.language, streamed=streamed)
        streamed = bool(self.streamed)
        if self.voice is not None:
            return builder.custom_voice(
                text, self.voice, self.language, self.instruct, streamed=streamed
            )
        return builder.voice_design(text, self.instruct, self.language, streamed=streamed)
