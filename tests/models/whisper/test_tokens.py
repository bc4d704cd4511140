"""Special ids of every vocabulary size, and the lists of suppressed ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oscine.errors import CheckpointError, UsageError
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.tokens import (
    TextDecoderInfo,
    begin_suppressed_tokens,
    non_speech_tokens,
    resolve_special_tokens,
    suppressed_tokens,
)
from oscine.text.languages import LANGUAGES, language_code
from oscine.text.whisper import WhisperTokenizer, load_tokenizer

CONFIG = WhisperConfig(
    n_mels=80,
    n_audio_ctx=1500,
    n_audio_state=64,
    n_audio_head=1,
    n_audio_layer=1,
    n_vocab=51865,
    n_text_ctx=448,
    n_text_state=64,
    n_text_head=1,
    n_text_layer=1,
)


def bare(
    count: int, multilingual: bool, special_tokens: dict[str, int] | None = None
) -> WhisperTokenizer:
    pieces = [b"%d" % id for id in range(count)]
    return WhisperTokenizer(
        [*pieces[:-1], b""] if multilingual else pieces, special_tokens or {}, Path("made up")
    )


@pytest.mark.parametrize(
    ("size", "end", "last_language", "transcribe", "no_speech", "stamps"),
    [
        (51864, 50256, None, 50358, 50361, 50363),
        (51865, 50257, ("su", 50357), 50359, 50362, 50364),
        (51866, 50257, ("yue", 50358), 50360, 50363, 50365),
    ],
)
def test_ids_follow_from_the_size(
    size: int,
    end: int,
    last_language: tuple[str, int] | None,
    transcribe: int,
    no_speech: int,
    stamps: int,
) -> None:
    multilingual = last_language is not None
    tokens = resolve_special_tokens(bare(end, multilingual), replace(CONFIG, n_vocab=size))
    assert (tokens.eot, tokens.sot, tokens.translate) == (end, end + 1, transcribe - 1)
    assert (tokens.transcribe, tokens.no_speech) == (transcribe, no_speech)
    assert (tokens.no_timestamps, tokens.timestamp_begin) == (stamps - 1, stamps)
    assert tokens.multilingual == multilingual
    if last_language:
        assert list(tokens.languages.items())[-1] == last_language
        assert tokens.sot_sequence("de", "translate", timestamps=True) == (
            end + 1, end + 4, tokens.translate
        )  # fmt: skip
    else:
        assert tokens.sot_sequence("en", "transcribe", timestamps=False) == (end + 1, stamps - 1)


def test_names_win_over_order() -> None:
    special_tokens = {
        "<|endoftext|>": 10, "<|startoftranscript|>": 11, "<|en|>": 12, "<|zh|>": 13,
        "<|transcribe|>": 14, "<|translate|>": 15, "<|startoflm|>": 16, "<|startofprev|>": 17,
        "<|nocaptions|>": 18, "<|notimestamps|>": 19, "<|0.00|>": 20,
    }  # fmt: skip
    config = replace(CONFIG, n_audio_ctx=4, n_vocab=25)
    tokens = resolve_special_tokens(bare(10, True, special_tokens), config)
    assert (tokens.transcribe, tokens.translate, tokens.no_speech) == (14, 15, 18)
    assert dict(tokens.languages) == {"en": 12, "zh": 13}


@pytest.mark.parametrize("size", [51863, 51864, 51967])
def test_a_tokenizer_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(CheckpointError, match=f"the weights have {size}"):
        resolve_special_tokens(bare(50257, True, {"<|en|>": 50259}), replace(CONFIG, n_vocab=size))


def test_ids_that_the_weights_lack_are_refused() -> None:
    """Named timestamps end the vocabulary; ids found by order would be outside it."""
    special_tokens = {"<|endoftext|>": 10, "<|notimestamps|>": 11, "<|0.00|>": 12, "<|en|>": 11}
    config = replace(CONFIG, n_audio_ctx=4, n_vocab=17)
    with pytest.raises(CheckpointError, match="covers 18 ids, the weights have 17"):
        resolve_special_tokens(bare(10, True, special_tokens), config)


def test_languages_by_code_and_name() -> None:
    assert len(LANGUAGES) == 100
    assert language_code("German") == language_code(" DE ") == "de"
    assert language_code("haitian creole") == language_code("Haitian") == "ht"
    assert language_code("mandarin") == "zh"
    with pytest.raises(UsageError, match=r"unknown language 'klingon'; .* of: en, zh, de"):
        language_code("klingon")


def test_the_checkpoints_lists_win() -> None:
    tokenizer = bare(50257, True)
    config = replace(CONFIG, suppress_tokens=(5, 99999), begin_suppress_tokens=(220, 50257))
    tokens = resolve_special_tokens(tokenizer, config)
    ids = suppressed_tokens((-1, 7), TextDecoderInfo(tokenizer, tokens, config))
    assert set(ids) == {5, 7} | tokens.always_suppressed()
    assert begin_suppressed_tokens(TextDecoderInfo(tokenizer, tokens, config)) == (220, 50257)


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    tokenizer = bare(50257, True)
    tokens = resolve_special_tokens(tokenizer, CONFIG)
    with pytest.raises(UsageError, match="suppress_tokens: 51865 is not an id"):
        suppressed_tokens((51865,), TextDecoderInfo(tokenizer, tokens, CONFIG))


@pytest.mark.weights
@pytest.mark.parametrize(
    ("name", "count", "ends"), [("tiny.en", 84, (1, 49146)), ("base", 82, (1, 50254))]
)
def test_non_speech_tokens_of_real_vocabularies(
    weights: dict[str, Path], name: str, count: int, ends: tuple[int, int]
) -> None:
    ids = non_speech_tokens(load_tokenizer(weights[name]))
    assert (len(ids), (min(ids), max(ids))) == (count, ends)
    # ♪ and the hyphen that begins a word are out, the hyphen and the comma inside are not.
    tokenizer = load_tokenizer(weights[name])
    assert tokenizer.encode(" ♪")[0] in ids
    assert tokenizer.encode(" -")[0] in ids
    assert not ids & {tokenizer.encode("-")[0], tokenizer.encode(",")[0]}
