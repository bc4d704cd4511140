"""Special tokens and languages, and the prompts and suppression lists made of them.

Source: whisper/tokenizer.py. The order of ids above the text tokens is end-of-text,
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
from oscine.text.whisper import Tokenizer

FRAMES_PER_TIMESTAMP = 2
SECONDS_PER_TIMESTAMP = FRAMES_PER_TIMESTAMP / FRAMES_PER_SECOND

_BRACKETS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split()
_SYMBOLS = ('"', *"#()*+/:;<=>@[\\]^_`{|}~「」『』", *_BRACKETS)
_NOTES = tuple("♩♪♫♬♭♮♯")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The special ids of one checkpoint. `languages` is empty for an English-only one."""

    vocabulary: int
    end: int
    start: int
    languages: Mapping[str, int]
    translate: int
    transcribe: int
    start_of_lm: int
    start_of_previous: int
    no_speech: int
    no_timestamps: int
    timestamp_begin: int

    @property
    def multilingual(self) -> bool:
        """Whether languages and tasks can be asked for."""
        return bool(self.languages)

    def start_sequence(self, language: str, task: str, timestamps: bool) -> tuple[int, ...]:
        """What every transcript begins with."""
        sequence = [self.start]
        if self.multilingual:
            sequence += [self.languages[language], getattr(self, task)]
        return tuple(sequence if timestamps else [*sequence, self.no_timestamps])

    def never_picked(self) -> set[int]:
        """Special ids that belong in prompts, not in what is picked."""
        return {
            self.start,
            self.translate,
            self.transcribe,
            self.start_of_lm,
            self.start_of_previous,
            self.no_speech,
        }


def resolve(tokenizer: Tokenizer, config: WhisperConfig) -> Tokens:
    """Find the special ids by their text, or by their order where the vocabulary lacks them.

    Raises CheckpointError if tokenizer and weights are not of one size.
    """
    end, path = tokenizer.end, tokenizer.path
    # A vocabulary with languages ends its text tokens with the empty string.
    multilingual = end > 0 and tokenizer.pieces[-1] == b""
    stamps = config.n_audio_ctx + 1
    named = tokenizer.special
    count = _language_count(tokenizer, config.n_vocab - end - 8 - stamps)
    after = end + 2 + count
    by_order = {
        "<|startoftranscript|>": end + 1,
        "<|translate|>": after,
        "<|transcribe|>": after + 1,
        "<|startoflm|>": after + 2,
        "<|startofprev|>": after + 3,
        "<|nospeech|>": named.get("<|nocaptions|>", after + 4),
        "<|notimestamps|>": after + 5,
    }
    found = {name: named.get(name, id) for name, id in by_order.items()}
    timestamp_begin = named.get("<|0.00|>", found["<|notimestamps|>"] + 1)
    codes = list(LANGUAGES)[:count]
    languages = {code: named.get(f"<|{code}|>", end + 2 + at) for at, code in enumerate(codes)}
    last = max(*found.values(), *languages.values(), *named.values(), 0)
    covered = max(timestamp_begin + stamps, last + 1)
    if covered != config.n_vocab:
        raise CheckpointError(
            path,
            f"the tokenizer covers {covered} ids, the weights have {config.n_vocab}",
            "use the tokenizer that belongs to these weights",
        )
    return Tokens(
        config.n_vocab,
        end,
        found["<|startoftranscript|>"],
        MappingProxyType(languages if multilingual else {}),
        found["<|translate|>"],
        found["<|transcribe|>"],
        found["<|startoflm|>"],
        found["<|startofprev|>"],
        found["<|nospeech|>"],
        found["<|notimestamps|>"],
        timestamp_begin,
    )


@dataclass(frozen=True, slots=True)
class TextSide:
    """What turns text into a checkpoint's ids and back: tokenizer, special ids, sizes."""

    tokenizer: Tokenizer
    tokens: Tokens
    config: WhisperConfig


def _language_count(tokenizer: Tokenizer, by_size: int) -> int:
    """How many language ids there are: those named, or what the vocabulary's size leaves."""
    matches = (re.fullmatch(r"<\|(\w+)\|>", name) for name in tokenizer.special)
    named = sum(match is not None and match[1] in LANGUAGES for match in matches)
    return named or max(0, min(by_size, len(LANGUAGES)))


def non_speech_tokens(tokenizer: Tokenizer) -> set[int]:
    """Ids of brackets, notes and the like, which annotate instead of transcribing.

    whisper/tokenizer.py: non_speech_tokens. Hyphen and apostrophe are kept out only where they
    begin a word; notes that are several tokens are kept out by their first.
    """
    ids = {tokenizer.encode(" -")[0], tokenizer.encode(" '")[0]}
    for symbol in (*_SYMBOLS, *_NOTES):
        for encoded in (tokenizer.encode(symbol), tokenizer.encode(" " + symbol)):
            if len(encoded) == 1 or symbol in _NOTES:
                ids.add(encoded[0])
    return ids


def suppressed(
    asked: Sequence[int], tokenizer: Tokenizer, tokens: Tokens, config: WhisperConfig
) -> tuple[int, ...]:
    """Ids never picked: those asked for, where -1 stands for the checkpoint's list or the computed.

    Raises UsageError for ids outside the vocabulary.
    """
    outside = [id for id in asked if not -1 <= id < tokens.vocabulary]
    if outside:
        raise UsageError(
            f"suppress_tokens: {outside[0]} is not an id; this model has 0 to "
            f"{tokens.vocabulary - 1}"
        )
    ids = {id for id in asked if id >= 0}
    if -1 in asked and config.suppress_tokens is not None:
        ids |= {id for id in config.suppress_tokens if 0 <= id < tokens.vocabulary}
    elif -1 in asked:
        ids |= non_speech_tokens(tokenizer)
    return tuple(sorted(ids | tokens.never_picked()))


def suppressed_first(
    tokenizer: Tokenizer, tokens: Tokens, config: WhisperConfig
) -> tuple[int, ...]:
    """Ids not picked first, so that a transcript is not blank: a space, end-of-text."""
    if config.begin_suppress_tokens is not None:
        return tuple(id for id in config.begin_suppress_tokens if 0 <= id < tokens.vocabulary)
    return (*tokenizer.encode(" "), tokens.end)
