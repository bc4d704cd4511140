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
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, TtsModelType

Rows = NDArray[np.float32]

SIZE_WITHOUT_INSTRUCT = "0b6"  # the size whose custom voices upstream gives no instruction


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """rows [L, D] float32 before the first frame; text [n, D]: one is added to each frame heard.

    The last row of text, the padding, stands for all that follow.
    """

    embeddings: Rows
    trailing_text: Rows


@dataclass(frozen=True, slots=True, eq=False)
class PromptDraft:
    """A prompt whose rows are yet to be looked up: `length` rows, `texts` rows of text.

    ids: of the text rows that it is made of. build: makes the prompt of the embeddings.
    """

    length: int
    trailing_text_rows: int
    text_ids: Sequence[int]
    build: Callable[[Embeddings], Prompt]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Whom to sound like: speaker [D], and to go on from what was said: codes [R, G] and the words
    of them. Without codes or text the speaker's vector alone."""

    speaker_embedding: Rows
    codes: NDArray[np.uint32] | None = None
    text: str | None = None


class Embeddings(Protocol):
    """Rows of the talker's width: what a runner gives."""

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """Projected rows of the text embedding: [n, D]."""
        ...

    def embed_code(self, code: int) -> Rows:
        """The talker's row of an id of its vocabulary: [D]."""
        ...

    def embed_reference(self, codes: NDArray[np.uint32]) -> Rows:
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
        streamed_text: bool = False,
    ) -> Prompt:
        """A voice that the model has by name.

        streamed: the layout in which text is heard while speaking. instruct: how to say it; a 0.6B
        model is not told, as upstream.
        """
        self.check_model_type("custom_voice", "a voice by name")
        name = self.speaker_key(voice)
        instruct = None if self.config.tts_model_size == SIZE_WITHOUT_INSTRUCT else instruct
        speaker = self.embeddings.embed_code(self.config.spk_id[name])
        language_id = self.language_id(language, name)
        return self.build(
            self.text_ids(text), language_id, speaker, instruct, streamed_text=streamed_text
        )

    def voice_design(
        self,
        text: str,
        instruct: str | None = None,
        language: str | None = None,
        *,
        streamed_text: bool = False,
    ) -> Prompt:
        """A voice as `instruct` describes it; streamed as in custom_voice."""
        self.check_model_type("voice_design", "a described voice")
        language_id = self.language_id(language)
        return self.build(
            self.text_ids(text), language_id, None, instruct, streamed_text=streamed_text
        )

    def clone(
        self,
        text: str,
        reference: Reference,
        language: str | None = None,
        *,
        streamed_text: bool = True,
    ) -> Prompt:
        """The voice of a reference: in context where it has codes and text, else by its vector."""
        self.check_model_type("base", "a cloned voice")
        width = self.config.talker.hidden_size
        if reference.speaker_embedding.shape != (width,):
            raise UsageError(
                f"a speaker vector must have {width} values for this model, "
                f"not {list(reference.speaker_embedding.shape)}"
            )
        text_ids, language_id = self.text_ids(text), self.language_id(language)
        if reference.codes is None:
            return self.build(
                text_ids,
                language_id,
                reference.speaker_embedding,
                None,
                streamed_text=streamed_text,
            )
        if reference.text is None or not reference.text.strip():
            raise UsageError(
                "a reference in context needs the text that is said in it; "
                "without it use the voice alone"
            )
        self.check_reference_codes(reference.codes)
        all_text_ids = [*self.text_ids(reference.text), *text_ids]
        return self.build(
            all_text_ids,
            language_id,
            reference.speaker_embedding,
            None,
            streamed_text=streamed_text,
            codes=reference.codes,
        )

    # -- rows ---------------------------------------------------------------------------------

    def build(
        self,
        text_ids: Sequence[int],
        language: int | None,
        speaker: Rows | None,
        instruct: str | None,
        *,
        streamed_text: bool,
        codes: NDArray[np.uint32] | None = None,
    ) -> Prompt:
        """Instruction, role, control rows and the body; body: ids of the text, after those of the
        reference's where there are codes."""
        config, row = self.config, self.embeddings.embed_code
        instruct_ids = self.instruct_ids(instruct)
        special_ids = [config.text_ids.pad, config.text_ids.bos, config.text_ids.eos]
        found = self.embeddings.embed_text(
            [*instruct_ids, *self.role_ids(), *special_ids, *text_ids]
        )
        before, marked, text = np.split(
            found, [len(found) - len(text_ids) - 3, len(found) - len(text_ids)]
        )
        pad, bos, end = marked
        codec_pad, codec_bos = row(config.codec_ids.pad), row(config.codec_ids.bos)
        codec_prefill = [row(code) for code in self.codec_prefill_ids(language)]
        codec_prefill += [speaker] if speaker is not None else []
        head = [before, pad + np.stack(codec_prefill), (bos + codec_pad)[None]]
        ended = np.concatenate([text, end[None]])
        if codes is not None:
            reference_frames = np.concatenate(
                [codec_bos[None], self.embeddings.embed_reference(codes)]
            )
            if streamed_text:
                rows, trailing_text = self.align_reference(ended, reference_frames, pad)
            else:
                rows, trailing_text = (
                    np.concatenate([ended + codec_pad, reference_frames + pad]),
                    ended[:0],
                )
        elif streamed_text:
            rows, trailing_text = ended[:1] + codec_bos, ended[1:]
        else:
            rows = np.concatenate([ended + codec_pad, (pad + codec_bos)[None]])
            trailing_text = ended[:0]
        return Prompt(np.concatenate([*head, rows]), np.concatenate([trailing_text, pad[None]]))

    def align_reference(self, text: Rows, reference_frames: Rows, pad: Rows) -> tuple[Rows, Rows]:
        """Text and reference at once: as many rows as the latter has; what text is left."""
        padding = np.broadcast_to(pad, (max(0, len(reference_frames) - len(text)), len(pad)))
        whole = np.concatenate([text, padding])
        return whole[: len(reference_frames)] + reference_frames, text[len(reference_frames) :]

    def codec_prefill_ids(self, language: int | None) -> list[int]:
        """Ids of the codec side that say which language to think in."""
        ids = self.config.codec_ids
        if language is None:
            return [ids.nothink, ids.think_bos, ids.think_eos]
        return [ids.think, ids.think_bos, language, ids.think_eos]

    # -- ids ----------------------------------------------------------------------------------

    def text_ids(self, text: str) -> list[int]:
        """Ids of the text to speak, without whitespace around it: a newline before it would melt
        with that of the role."""
        if not isinstance(text, str) or not text.strip():
            raise UsageError("there is no text to speak")
        return self.tokenizer.encode(text.strip())

    def role_ids(self) -> list[int]:
        """Ids of the three rows that say who speaks."""
        return [
            self.config.text_ids.im_start,
            self.config.text_ids.assistant,
            *self.tokenizer.encode("\n"),
        ]

    def instruct_ids(self, instruct: str | None) -> list[int]:
        """Ids of an instruction, none for an empty one."""
        if instruct is None or not instruct.strip():
            return []
        ids = self.config.text_ids
        words = self.tokenizer.encode(f"user\n{instruct}")
        return [ids.im_start, *words, ids.im_end, *self.tokenizer.encode("\n")]

    # -- names --------------------------------------------------------------------------------

    def check_model_type(self, tts_model_type: TtsModelType, call: str) -> None:
        """Refuse a call that this model is not made for."""
        if self.config.tts_model_type != tts_model_type:
            raise UsageError(
                f"{call} needs a {tts_model_type} model; this one is {self.config.tts_model_type}"
            )

    def speaker_key(self, voice: str | None) -> str:
        """The key of a voice's name."""
        name = (voice or "").strip().lower()
        if name not in self.config.spk_id:
            problem = f"there is no voice {voice!r}" if name else "a voice is needed"
            raise UsageError(f"{problem}; this model has {', '.join(sorted(self.config.spk_id))}")
        return name

    def languages(self) -> tuple[str, ...]:
        """What can be asked for; "auto" leaves the language to the model."""
        return ("auto", *self.config.supported_languages)

    def language_id(self, language: str | None, speaker: str | None = None) -> int | None:
        """The id of a language; of the speaker's dialect, where Chinese or nothing is asked for."""
        name = (language or "auto").strip().lower()
        if name not in self.languages():
            raise UsageError(
                f"this model does not speak {language!r}; it speaks {', '.join(self.languages())}"
            )
        dialect = self.config.spk_is_dialect.get(speaker or "")
        if dialect is not None and name in ("auto", "chinese"):
            name = dialect
        return None if name == "auto" else self.config.codec_language_id[name]

    def check_reference_codes(self, codes: NDArray[np.uint32]) -> None:
        """Refuse reference codes that are none."""
        groups, most = self.config.num_code_groups, self.config.codec.codebook_size
        if codes.ndim != 2 or codes.shape[1] != groups or not len(codes):
            raise UsageError(f"codes must be [1.., {groups}], not {list(codes.shape)}")
        if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= most:
            raise UsageError(f"codes must be whole numbers from 0 to {most - 1}")
