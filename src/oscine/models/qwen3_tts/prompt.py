"""Prompts: the embeddings that the talker is prefilled with, and the text that it gets meanwhile.

Each position is the sum of a text side, a projected text embedding, and a codec side, an embedding
of the talker's own vocabulary. Source: generate() of qwen_tts/core/models/modeling_qwen3_tts.py;
MODELS/qwen3_tts.md has the layouts.
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

SIZE_WITHOUT_INSTRUCT = "0b6"  # upstream ignores instructions for this size


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """embeddings [L, D] float32 for the prefill; trailing_text [n, D]: a row is added to each
    frame.

    After the last row of trailing_text, the padding, that row is used for all further frames.
    """

    embeddings: Rows
    trailing_text: Rows


@dataclass(frozen=True, slots=True, eq=False)
class PromptDraft:
    """A prompt before its embeddings are looked up.

    length: rows of the prompt. trailing_text_rows: rows of trailing text. ids_to_embed: the
    text ids whose embeddings it needs (template, instruction and texts), in order. build: makes
    the prompt from the embeddings.
    """

    length: int
    trailing_text_rows: int
    ids_to_embed: Sequence[int]
    build: Callable[[Embeddings], Prompt]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The voice to clone: speaker_embedding [D], and for in-context cloning codes [R, G] with their
    text.

    Without codes only the speaker embedding is used.
    """

    speaker_embedding: Rows
    codes: NDArray[np.uint32] | None = None
    text: str | None = None


class Embeddings(Protocol):
    """Embedding lookups of the talker's width, which a runner provides."""

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """Projected text embeddings: [n, D]."""
        ...

    def embed_code(self, code: int) -> Rows:
        """The talker's embedding of an id of its vocabulary: [D]."""
        ...

    def embed_reference(self, codes: NDArray[np.uint32]) -> Rows:
        """The sum of the embeddings of each frame's codes: [R, G] -> [R, D]."""
        ...


class Tokenizer(Protocol):
    """Encodes text to ids of the text vocabulary; names of special tokens are encoded as plain
    text.
    """

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special ids."""
        ...


class PromptBuilder:
    """Builds the prompts of one model. Every method raises UsageError for unsupported input."""

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
        """Prompt for one of the model's own voices.

        streamed_text: the layout in which text is fed while generating. instruct: how to speak;
        ignored by a 0.6B model, as upstream does.
        """
        self.check_model_type("custom_voice", "a voice by name")
        name = self.speaker_key(voice)
        instruct = None if self.config.tts_model_size == SIZE_WITHOUT_INSTRUCT else instruct
        speaker = self.embeddings.embed_code(self.config.spk_id[name])
        language_id = self.language_id(language, name)
        return self.build(
            self.encode_text(text), language_id, speaker, instruct, streamed_text=streamed_text
        )

    def voice_design(
        self,
        text: str,
        instruct: str | None = None,
        language: str | None = None,
        *,
        streamed_text: bool = False,
    ) -> Prompt:
        """Prompt for a voice that `instruct` describes; streamed_text: text is fed while
        generating.
        """
        self.check_model_type("voice_design", "a described voice")
        language_id = self.language_id(language)
        return self.build(
            self.encode_text(text), language_id, None, instruct, streamed_text=streamed_text
        )

    def clone(
        self,
        text: str,
        reference: Reference,
        language: str | None = None,
        *,
        streamed_text: bool = True,
    ) -> Prompt:
        """Prompt for the voice of a reference: in context if it has codes and text, else by its
        embedding.
        """
        self.check_model_type("base", "a cloned voice")
        width = self.config.talker.hidden_size
        if reference.speaker_embedding.shape != (width,):
            raise UsageError(
                f"a speaker vector must have {width} values for this model, "
                f"not {list(reference.speaker_embedding.shape)}"
            )
        text_ids, language_id = self.encode_text(text), self.language_id(language)
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
                "a reference with codes needs the text that it says; "
                "without it use the speaker embedding alone"
            )
        self.check_reference_codes(reference.codes)
        all_text_ids = [*self.encode_text(reference.text), *text_ids]
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
        """Instruction, role, codec prefill and text.

        text_ids: ids of the text, after those of the reference's text if there are codes.
        """
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
        """Add text and reference frames row by row; returns the sums and the remaining text."""
        padding = np.broadcast_to(pad, (max(0, len(reference_frames) - len(text)), len(pad)))
        whole = np.concatenate([text, padding])
        return whole[: len(reference_frames)] + reference_frames, text[len(reference_frames) :]

    def codec_prefill_ids(self, language: int | None) -> list[int]:
        """Codec ids that select the language to think in."""
        ids = self.config.codec_ids
        if language is None:
            return [ids.nothink, ids.think_bos, ids.think_eos]
        return [ids.think, ids.think_bos, language, ids.think_eos]

    # -- ids ----------------------------------------------------------------------------------

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text, stripped: a newline at its start would merge with the role's newline."""
        if not isinstance(text, str) or not text.strip():
            raise UsageError("there is no text to speak")
        return self.tokenizer.encode(text.strip())

    def role_ids(self) -> list[int]:
        """Ids of the three rows that start the assistant's turn."""
        return [
            self.config.text_ids.im_start,
            self.config.text_ids.assistant,
            *self.tokenizer.encode("\n"),
        ]

    def instruct_ids(self, instruct: str | None) -> list[int]:
        """Ids of an instruction's turn; empty for an empty instruction."""
        if instruct is None or not instruct.strip():
            return []
        ids = self.config.text_ids
        words = self.tokenizer.encode(f"user\n{instruct}")
        return [ids.im_start, *words, ids.im_end, *self.tokenizer.encode("\n")]

    # -- names --------------------------------------------------------------------------------

    def check_model_type(self, tts_model_type: TtsModelType, call: str) -> None:
        """Raise UsageError if the model is of another type."""
        if self.config.tts_model_type != tts_model_type:
            raise UsageError(
                f"{call} needs a {tts_model_type} model; this one is {self.config.tts_model_type}"
            )

    def speaker_key(self, voice: str | None) -> str:
        """The key of a voice's name in spk_id."""
        name = (voice or "").strip().lower()
        if name not in self.config.spk_id:
            problem = f"there is no voice {voice!r}" if name else "a voice is needed"
            raise UsageError(f"{problem}; this model has {', '.join(sorted(self.config.spk_id))}")
        return name

    def languages(self) -> tuple[str, ...]:
        """Languages that can be requested; with "auto" the model chooses."""
        return ("auto", *self.config.supported_languages)

    def language_id(self, language: str | None, speaker: str | None = None) -> int | None:
        """The id of a language, or of the speaker's dialect if Chinese or auto is requested."""
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
        """Raise UsageError for reference codes of another shape, dtype or range."""
        groups, most = self.config.num_code_groups, self.config.codec.codebook_size
        if codes.ndim != 2 or codes.shape[1] != groups or not len(codes):
            raise UsageError(f"codes must be [1.., {groups}], not {list(codes.shape)}")
        if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= most:
            raise UsageError(f"codes must be whole numbers from 0 to {most - 1}")
