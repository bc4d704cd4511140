"""Prompts, row by row: the ids of its text side and codec side identify each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import UsageError
from oscine.models.qwen3_tts.prompt import PromptBuilder, Reference
from oscine.models.qwen3_tts.weights import load_weights

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
CONFIGS = {
    kind: replace(load_weights(GOLDENS / kind / "ckpt").config, num_code_groups=2)
    for kind in ("custom_voice", "voice_design", "base")
}
FRAME, SPEAKER = 10_000, 20_000  # codec sides of the reference's frames and of its vector


class Rows:
    """Rows whose first value is the text id and whose second is the codec id: sums show both."""

    def __init__(self, width: int) -> None:
        self.width = width

    def row(self, text: int, code: int) -> np.ndarray:
        row = np.zeros(self.width, np.float32)
        row[:2] = text, code
        return row

    def embed_text(self, ids: Sequence[int]) -> Any:
        return np.array([self.row(id, 0) for id in ids], np.float32).reshape(-1, self.width)

    def embed_code(self, code: int) -> Any:
        return self.row(0, code)

    def embed_reference(self, codes: Any) -> Any:
        return np.array([self.row(0, FRAME + frame) for frame in range(len(codes))])


class Letters:
    """A letter an id."""

    def encode(self, text: str) -> list[int]:
        return [1000 + ord(letter) for letter in text]


def prompter(kind: str, **changes: Any) -> PromptBuilder:
    config = replace(CONFIGS[kind], **changes)
    return PromptBuilder(config, Letters(), Rows(config.talker.hidden_size))


def pairs(rows: np.ndarray) -> list[tuple[int, int]]:
    return [(int(row[0]), int(row[1])) for row in rows]


def ids(text: str) -> list[int]:
    return Letters().encode(text)


def head(p: PromptBuilder, language: str | None, speaker: int | None) -> list[tuple[int, int]]:
    """Role and control rows."""
    config, text, codec = p.config, p.config.text_ids, p.config.codec_ids
    thoughts = [codec.nothink, codec.think_bos, codec.think_eos]
    if language:
        thoughts = [
            codec.think,
            codec.think_bos,
            config.codec_language_id[language],
            codec.think_eos,
        ]
    thoughts += [] if speaker is None else [speaker]
    role = [(text.im_start, 0), (text.assistant, 0), (ids("\n")[0], 0)]
    return [*role, *[(text.pad, code) for code in thoughts], (text.bos, codec.pad)]


def reference(p: PromptBuilder, frames: int, text: str | None = "ref") -> Reference:
    vector = np.zeros(p.config.talker.hidden_size, np.float32)
    vector[1] = SPEAKER
    return Reference(vector, np.zeros((frames, 2), np.uint32), text)


# -- layouts --------------------------------------------------------------------------------------


def test_full_text_comes_before_the_first_frame() -> None:
    p = prompter("custom_voice")
    text, codec = p.config.text_ids, p.config.codec_ids
    found = p.custom_voice(" ab\n", "Ryan", "english")
    body = [*[(id, codec.pad) for id in ids("ab")], (text.eos, codec.pad), (text.pad, codec.bos)]
    assert pairs(found.embeddings) == [*head(p, "english", p.config.spk_id["ryan"]), *body]
    assert pairs(found.trailing_text) == [(text.pad, 0)]
    assert len(found.embeddings) == 2 + 11


def test_streamed_text_is_heard_while_speaking() -> None:
    p = prompter("custom_voice")
    text, codec = p.config.text_ids, p.config.codec_ids
    found = p.custom_voice("abc", "ryan", "english", streamed_text=True)
    assert pairs(found.embeddings)[-1] == (ids("a")[0], codec.bos)
    assert len(found.embeddings) == 10
    assert pairs(found.trailing_text) == [
        *[(id, 0) for id in ids("bc")],
        (text.eos, 0),
        (text.pad, 0),
    ]


def test_a_described_voice_has_no_speaker_and_its_description_first() -> None:
    p = prompter("voice_design")
    text = p.config.text_ids
    found = pairs(p.voice_design("a", "low", "Chinese").embeddings)
    told = [text.im_start, *ids("user\nlow"), text.im_end, *ids("\n")]
    assert found[: len(told)] == [(id, 0) for id in told]
    assert found[len(told) : -3] == head(p, "chinese", None)
    assert pairs(p.voice_design("a", " \n").embeddings)[:-3] == head(p, None, None)


def test_small_custom_voices_are_told_nothing() -> None:
    small, large = (
        prompter("custom_voice", tts_model_size="0b6"),
        prompter("custom_voice", tts_model_size="1b7"),
    )
    plain = pairs(small.custom_voice("a", "ryan").embeddings)
    assert pairs(small.custom_voice("a", "ryan", None, "slowly").embeddings) == plain
    assert len(large.custom_voice("a", "ryan", None, "slowly").embeddings) > len(plain)


def test_a_clone_by_vector_may_be_streamed() -> None:
    p = prompter("base")
    codec = p.config.codec_ids
    who = Reference(reference(p, 1).speaker_embedding)
    found = p.clone("ab", who, "german")
    assert pairs(found.embeddings) == [*head(p, "german", SPEAKER), (ids("a")[0], codec.bos)]
    assert len(p.clone("ab", who, streamed_text=False).trailing_text) == 1


@given(st.integers(1, 9), st.text("ab", min_size=1, max_size=5), st.text("cd", min_size=1))
def test_in_context_text_and_reference_go_side_by_side(frames: int, said: str, text: str) -> None:
    p = prompter("base")
    marks, codec = p.config.text_ids, p.config.codec_ids
    found = p.clone(text, reference(p, frames, said))
    before = head(p, None, SPEAKER)
    words = [*ids(said + text), marks.eos]
    codes = [codec.bos, *[FRAME + frame for frame in range(frames)]]
    beside = [*words, *[marks.pad] * len(codes)][: len(codes)]
    assert pairs(found.embeddings) == [*before, *zip(beside, codes, strict=True)]
    assert pairs(found.trailing_text) == [(id, 0) for id in [*words[len(codes) :], marks.pad]]


def test_in_context_all_text_may_come_first() -> None:
    p = prompter("base")
    marks, codec = p.config.text_ids, p.config.codec_ids
    found = p.clone("b", reference(p, 1, "a"), streamed_text=False)
    assert pairs(found.embeddings)[len(head(p, None, SPEAKER)) :] == [
        *[(id, codec.pad) for id in [*ids("ab"), marks.eos]],
        (marks.pad, codec.bos), (marks.pad, FRAME),
    ]  # fmt: skip
    assert pairs(found.trailing_text) == [(marks.pad, 0)]


# -- languages and names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voice", "language", "thought"),
    [
        ("eric", None, "sichuan_dialect"),
        ("Eric", "Auto", "sichuan_dialect"),
        ("eric", "CHINESE", "sichuan_dialect"),
        ("eric", "english", "english"),
        ("ryan", "chinese", "chinese"),
        ("ryan", "", None),
    ],
)
def test_dialects_come_with_their_speakers(
    voice: str, language: str | None, thought: str | None
) -> None:
    p = prompter("custom_voice")
    found = pairs(p.custom_voice("a", voice, language).embeddings)
    assert found[:-3] == head(p, thought, p.config.spk_id[voice.lower()])


def said(call: Any) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_what_is_not_there_is_refused_with_what_is() -> None:
    p = prompter("custom_voice")
    for voice in ("nobody", "", None):
        assert "ryan" in said(lambda voice=voice: p.custom_voice("a", voice))
    message = said(lambda: p.custom_voice("a", "ryan", "klingon"))
    assert "auto" in message
    assert "english" in message
    assert "dialect" not in message
    assert "english" in said(lambda: p.custom_voice("a", "ryan", "sichuan_dialect"))
    assert "dialect" not in " ".join(p.languages())


def test_calls_that_a_model_is_not_made_for() -> None:
    base, voices, design = (prompter(k) for k in ("base", "custom_voice", "voice_design"))
    assert "base" in said(lambda: base.custom_voice("a", "ryan"))
    assert "custom_voice" in said(lambda: voices.voice_design("a", "low"))
    assert "base" in said(lambda: design.clone("a", reference(base, 1)))


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000"])
def test_no_text_is_refused(text: str) -> None:
    p = prompter("base")
    assert "no text" in said(lambda: prompter("voice_design").voice_design(text))
    assert "no text" in said(lambda: p.clone(text, reference(p, 1)))
    assert "text" in said(lambda: p.clone("a", reference(p, 1, text)))
    assert "text" in said(lambda: p.clone("a", reference(p, 1, None)))


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((0, 2), np.uint32),
        np.zeros((3, 3), np.uint32),
        np.zeros(4, np.uint32),
        np.full((1, 2), -1),
        np.full((1, 2), 10**6),
        np.zeros((1, 2), np.float32),
    ],
)
def test_reference_codes_that_are_none(codes: Any) -> None:
    p = prompter("base")
    who = replace(reference(p, 1), codes=codes)
    assert "codes must be" in said(lambda: p.clone("a", who))


def test_a_vector_of_another_model() -> None:
    p = prompter("base")
    assert "speaker vector" in said(lambda: p.clone("a", Reference(np.zeros(3, np.float32))))
