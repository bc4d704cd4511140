"""Prompts: the rows that the talker hears before it speaks, and the text that it hears meanwhile.

Each position is a sum of a text side, a projected row of the text embedding, and a codec side, a
row of the talker's own embedding. Source: generate() of qwen_tts/core/models/
modeling_qwen3_tts.py; the layouts are in MODELS/qwen3_tts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import Kind, Qwen3TtsConfig

Rows = NDArray[np.float32]

NO_INSTRUCTION = "0b6"  # the size whose custom voices upstream gives no instruction


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """rows [L, D] float32 before the first frame; text [n, D]: one is added to each frame heard.

    The last row of text, the padding, stands for all that follow.
    """

    rows: Rows
    text: Rows


@dataclass(frozen=True, slots=True, eq=False)
class PromptDraft:
    """A prompt whose rows are yet to be looked up: `length` rows, `texts` rows of text.

    ids: of the text rows that it is made of. build: makes the prompt of the embeddings.
    """

    length: int
    texts: int
    ids: Sequence[int]
    build: Callable[[Embeddings], Prompt]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Whom to sound like: speaker [D], and to go on from what was said: codes [R, G] and the words
    of them. Without codes or text the speaker's vector alone."""

    speaker: Rows
    codes: NDArray[np.uint32] | None = None
    text: str | None = None


class Embeddings(Protocol):
    """Rows of the talker's width: what a runner gives."""

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """Projected rows of the text embedding: [n, D]."""
        ...

    def code_row(self, code: int) -> Rows:
        """The talker's row of an id of its vocabulary: [D]."""
        ...

    def reference_rows(self, codes: NDArray[np.uint32]) -> Rows:
        """The sum of a frame's rows: [R, G] -> [R, D]."""
        ...


class Tokenizer(Protocol):
    """Text to ids of the text vocabulary; names of special ids are text like any other."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text, none of them special."""
        ...


class PromptBuilder:
    """Makes the prompts of one model. Every method raises UsageError for what it cannot say."""

    def __init__(
        self, config: Qwen3TtsConfig, tokenizer: Tokenizer, embeddings: Embeddings
    ) -> None:
        self.config, self.tokenizer, self.embeddings = config, tokenizer, embeddings

    # -- the modes ----------------------------------------------------------------------------

    def custom_voice(
        self,
        text: str,
        voice: str,
        language: str | None = None,
        instruct: str | None = None,
        *,
        streamed: bool = False,
    ) -> Prompt:
        """A voice that the model has by name.

        streamed: the layout in which text is heard while speaking. instruct: how to say it; a 0.6B
        model is not told, as upstream.
        """
        self.check_kind("custom_voice", "a voice by name")
        name = self.speaker(voice)
        told = None if self.config.size == NO_INSTRUCTION else instruct
        speaker = self.embeddings.code_row(self.config.speakers[name])
        language_id = self.language(language, name)
        return self.build(self.body(text), language_id, speaker, told, streamed=streamed)

    def voice_design(
        self,
        text: str,
        instruct: str | None = None,
        language: str | None = None,
        *,
        streamed: bool = False,
    ) -> Prompt:
        """A voice as `instruct` describes it; streamed as in custom_voice."""
        self.check_kind("voice_design", "a described voice")
        language_id = self.language(language)
        return self.build(self.body(text), language_id, None, instruct, streamed=streamed)

    def clone(
        self,
        text: str,
        reference: Reference,
        language: str | None = None,
        *,
        streamed: bool = True,
    ) -> Prompt:
        """The voice of a reference: in context where it has codes and text, else by its vector."""
        self.check_kind("base", "a cloned voice")
        width = self.config.talker.width
        if reference.speaker.shape != (width,):
            raise UsageError(
                f"a speaker vector must have {width} values for this model, "
                f"not {list(reference.speaker.shape)}"
            )
        body, language_id = self.body(text), self.language(language)
        if reference.codes is None:
            return self.build(body, language_id, reference.speaker, None, streamed=streamed)
        if reference.text is None or not reference.text.strip():
            raise UsageError(
                "a reference in context needs the text that is said in it; "
                "without it use the voice alone"
            )
        self.check_codes(reference.codes)
        words = [*self.body(reference.text), *body]
        return self.build(
            words, language_id, reference.speaker, None, streamed=streamed, codes=reference.codes
        )

    # -- rows ---------------------------------------------------------------------------------

    def build(
        self,
        body: Sequence[int],
        language: int | None,
        speaker: Rows | None,
        instruct: str | None,
        *,
        streamed: bool,
        codes: NDArray[np.uint32] | None = None,
    ) -> Prompt:
        """Instruction, role, control rows and the body; body: ids of the text, after those of the
        reference's where there are codes."""
        config, row = self.config, self.embeddings.code_row
        told = self.instruction(instruct)
        marks = [config.text.pad, config.text.bos, config.text.eos]
        found = self.embeddings.embed_text([*told, *self.role(), *marks, *body])
        before, marked, text = np.split(found, [len(found) - len(body) - 3, len(found) - len(body)])
        pad, bos, end = marked
        codec_pad, codec_bos = row(config.codec_ids.pad), row(config.codec_ids.bos)
        control = [row(code) for code in self.thoughts(language)]
        control += [speaker] if speaker is not None else []
        head = [before, pad + np.stack(control), (bos + codec_pad)[None]]
        ended = np.concatenate([text, end[None]])
        if codes is not None:
            said = np.concatenate([codec_bos[None], self.embeddings.reference_rows(codes)])
            if streamed:
                rows, heard = self.beside(ended, said, pad)
            else:
                rows, heard = np.concatenate([ended + codec_pad, said + pad]), ended[:0]
        elif streamed:
            rows, heard = ended[:1] + codec_bos, ended[1:]
        else:
            rows = np.concatenate([ended + codec_pad, (pad + codec_bos)[None]])
            heard = ended[:0]
        return Prompt(np.concatenate([*head, rows]), np.concatenate([heard, pad[None]]))

    def beside(self, text: Rows, said: Rows, pad: Rows) -> tuple[Rows, Rows]:
        """Text and reference at once: as many rows as the latter has; what text is left."""
        padding = np.broadcast_to(pad, (max(0, len(said) - len(text)), len(pad)))
        whole = np.concatenate([text, padding])
        return whole[: len(said)] + said, text[len(said) :]

    def thoughts(self, language: int | None) -> list[int]:
        """Ids of the codec side that say which language to think in."""
        ids = self.config.codec_ids
        if language is None:
            return [ids.nothink, ids.think_bos, ids.think_eos]
        return [ids.think, ids.think_bos, language, ids.think_eos]

    # -- ids ----------------------------------------------------------------------------------

    def body(self, text: str) -> list[int]:
        """Ids of the text to speak, without whitespace around it: a newline before it would melt
        with that of the role."""
        if not isinstance(text, str) or not text.strip():
            raise UsageError("there is no text to speak")
        return self.tokenizer.encode(text.strip())

    def role(self) -> list[int]:
        """Ids of the three rows that say who speaks."""
        return [self.config.text.im_start, self.config.text.assistant, *self.tokenizer.encode("\n")]

    def instruction(self, instruct: str | None) -> list[int]:
        """Ids of an instruction, none for an empty one."""
        if instruct is None or not instruct.strip():
            return []
        ids = self.config.text
        words = self.tokenizer.encode(f"user\n{instruct}")
        return [ids.im_start, *words, ids.im_end, *self.tokenizer.encode("\n")]

    # -- names --------------------------------------------------------------------------------

    def check_kind(self, kind: Kind, call: str) -> None:
        """Refuse a call that this model is not made for."""
        if self.config.kind != kind:
            raise UsageError(f"{call} needs a {kind} model; this one is {self.config.kind}")

    def speaker(self, voice: str | None) -> str:
        """The key of a voice's name."""
        name = (voice or "").strip().lower()
        if name not in self.config.speakers:
            problem = f"there is no voice {voice!r}" if name else "a voice is needed"
            raise UsageError(f"{problem}; this model has {', '.join(sorted(self.config.speakers))}")
        return name

    def languages(self) -> tuple[str, ...]:
        """What can be asked for; "auto" leaves the language to the model."""
        return ("auto", *self.config.spoken)

    def language(self, language: str | None, speaker: str | None = None) -> int | None:
        """The id of a language; of the speaker's dialect, where Chinese or nothing is asked for."""
        name = (language or "auto").strip().lower()
        if name not in self.languages():
            raise UsageError(
                f"this model does not speak {language!r}; it speaks {', '.join(self.languages())}"
            )
        dialect = self.config.dialects.get(speaker or "")
        if dialect is not None and name in ("auto", "chinese"):
            name = dialect
        return None if name == "auto" else self.config.languages[name]

    def check_codes(self, codes: NDArray[np.uint32]) -> None:
        """Refuse reference codes that are none."""
        groups, most = self.config.groups, self.config.codec.codes
        if codes.ndim != 2 or codes.shape[1] != groups or not len(codes):
            raise UsageError(f"codes must be [1.., {groups}], not {list(codes.shape)}")
        if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= most:
            raise UsageError(f"codes must be whole numbers from 0 to {most - 1}")
