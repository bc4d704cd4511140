"""Special tokens: their ids, the start-of-transcript sequence and the suppression lists.

Source: whisper/tokenizer.py. Above the text tokens, ids are in this order: end-of-text,
start-of-transcript, languages, translate, transcribe, start-of-LM, start-of-previous, no-speech,
no-timestamps, timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.errors import CheckpointError, UsageError
from oscine.models.whisper.config import WhisperConfig
from oscine.text.languages import LANGUAGES
from oscine.text.whisper import WhisperTokenizer

FRAMES_PER_TIMESTAMP = 2
SECONDS_PER_TIMESTAMP = FRAMES_PER_TIMESTAMP / FRAMES_PER_SECOND

_BRACKETS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split()
_SYMBOLS = ('"', *"#()*+/:;<=>@[\\]^_`{|}~「」『』", *_BRACKETS)
_MUSIC_NOTES = tuple("♩♪♫♬♭♮♯")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids of a checkpoint's special tokens, named as in openai-whisper's Tokenizer."""

    n_vocab: int
    eot: int
    sot: int
    languages: Mapping[str, int]  # by code; empty if the model is English-only
    translate: int
    transcribe: int
    sot_lm: int
    sot_prev: int
    no_speech: int
    no_timestamps: int
    timestamp_begin: int

    @property
    def multilingual(self) -> bool:
        """Whether the model has language and task tokens."""
        return bool(self.languages)

    def sot_sequence(self, language: str, task: str, timestamps: bool) -> tuple[int, ...]:
        """The tokens with which each transcript starts: sot, language, task, no-timestamps."""
        sequence = [self.sot]
        if self.multilingual:
            sequence += [self.languages[language], getattr(self, task)]
        return tuple(sequence if timestamps else [*sequence, self.no_timestamps])

    def always_suppressed(self) -> set[int]:
        """Special tokens that only prompts contain and that are never sampled."""
        return {
            self.sot,
            self.translate,
            self.transcribe,
            self.sot_lm,
            self.sot_prev,
            self.no_speech,
        }


def resolve_special_tokens(tokenizer: WhisperTokenizer, config: WhisperConfig) -> SpecialTokens:
    """The special ids by name, or by their order where the tokenizer lacks the name.

    Raises CheckpointError if the tokenizer and the weights differ in size.
    """
    eot, path = tokenizer.eot, tokenizer.path
    # The last text token of a multilingual vocabulary is the empty string.
    multilingual = eot > 0 and tokenizer.token_bytes[-1] == b""
    timestamps = config.n_audio_ctx + 1
    named = tokenizer.special_tokens
    count = _language_count(tokenizer, config.n_vocab - eot - 8 - timestamps)
    after = eot + 2 + count
    by_order = {
        "<|startoftranscript|>": eot + 1,
        "<|translate|>": after,
        "<|transcribe|>": after + 1,
        "<|startoflm|>": after + 2,
        "<|startofprev|>": after + 3,
        "<|nospeech|>": named.get("<|nocaptions|>", after + 4),
        "<|notimestamps|>": after + 5,
    }
    ids = {name: named.get(name, id) for name, id in by_order.items()}
    timestamp_begin = named.get("<|0.00|>", ids["<|notimestamps|>"] + 1)
    codes = list(LANGUAGES)[:count]
    languages = {
        code: named.get(f"<|{code}|>", eot + 2 + index) for index, code in enumerate(codes)
    }
    last = max(*ids.values(), *languages.values(), *named.values(), 0)
    covered = max(timestamp_begin + timestamps, last + 1)
    if covered != config.n_vocab:
        raise CheckpointError(
            path,
            f"the tokenizer covers {covered} ids, the weights have {config.n_vocab}",
            "use the tokenizer that belongs to these weights",
        )
    return SpecialTokens(
        config.n_vocab,
        eot,
        ids["<|startoftranscript|>"],
        MappingProxyType(languages if multilingual else {}),
        ids["<|translate|>"],
        ids["<|transcribe|>"],
        ids["<|startoflm|>"],
        ids["<|startofprev|>"],
        ids["<|nospeech|>"],
        ids["<|notimestamps|>"],
        timestamp_begin,
    )


@dataclass(frozen=True, slots=True)
class TextDecoderInfo:
    """What decoding needs to know about a model's text decoder: tokenizer, special ids, sizes."""

    tokenizer: WhisperTokenizer
    special_tokens: SpecialTokens
    config: WhisperConfig


def _language_count(tokenizer: WhisperTokenizer, by_size: int) -> int:
    """The number of language tokens: those that are named, else as many as the size implies."""
    matches = (re.fullmatch(r"<\|(\w+)\|>", name) for name in tokenizer.special_tokens)
    named = sum(match is not None and match[1] in LANGUAGES for match in matches)
    return named or max(0, min(by_size, len(LANGUAGES)))


def non_speech_tokens(tokenizer: WhisperTokenizer) -> set[int]:
    """The ids of brackets, musical notes and the like, which are annotations and not speech.

    Hyphens and apostrophes are included only at the start of a word; of a note of several tokens
    the first is. Source: whisper/tokenizer.py, non_speech_tokens.
    """
    ids = {tokenizer.encode(" -")[0], tokenizer.encode(" '")[0]}
    for symbol in (*_SYMBOLS, *_MUSIC_NOTES):
        for encoded in (tokenizer.encode(symbol), tokenizer.encode(" " + symbol)):
            if len(encoded) == 1 or symbol in _MUSIC_NOTES:
                ids.add(encoded[0])
    return ids


def suppressed_tokens(suppress: Sequence[int], info: TextDecoderInfo) -> tuple[int, ...]:
    """The ids that are never sampled: those of the option and the special ones.

    -1 stands for the checkpoint's list, or for non_speech_tokens if it has none. Raises UsageError
    for ids outside the vocabulary.
    """
    special_tokens, config = info.special_tokens, info.config
    outside = [id for id in suppress if not -1 <= id < special_tokens.n_vocab]
    if outside:
        last = special_tokens.n_vocab - 1
        raise UsageError(f"suppress_tokens: {outside[0]} is not an id; this model has 0 to {last}")
    ids = {id for id in suppress if id >= 0}
    if -1 in suppress and config.suppress_tokens is not None:
        ids |= {id for id in config.suppress_tokens if 0 <= id < special_tokens.n_vocab}
    elif -1 in suppress:
        ids |= non_speech_tokens(info.tokenizer)
    return tuple(sorted(ids | special_tokens.always_suppressed()))


def begin_suppressed_tokens(info: TextDecoderInfo) -> tuple[int, ...]:
    """The ids that are not sampled first, so that no transcript is blank: space, end-of-text."""
    special_tokens, config = info.special_tokens, info.config
    if config.begin_suppress_tokens is not None:
        return tuple(id for id in config.begin_suppress_tokens if 0 <= id < special_tokens.n_vocab)
    return (*info.tokenizer.encode(" "), special_tokens.eot)
