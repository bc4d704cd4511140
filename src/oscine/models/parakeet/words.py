"""Tokens with frames to words with seconds, and words to segments.

Source: NeMo nemo/collections/asr/parts/utils/timestamp_utils.py (get_words_offsets) for words,
nemo/collections/asr/parts/submodules/rnnt_decoding.py (_refine_timestamps_tdt) for the times of
punctuation; parakeet-mlx alignment.py for the ends of sentences. Frames here are mel frames of 10
ms of the detected speech.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import log

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.sequences import Emission
from oscine.options.transcribe import MAX_SEGMENT_S, SILENCE_GAP_S, SegmentOptions
from oscine.text.compression import compression_ratio
from oscine.text.sentencepiece import SentencePieceTokenizer
from oscine.types import Segment, Word

SENTENCE_ENDS = tuple(".!?。？！")
CLOSING = "\"'”’»)]」』"  # may follow a sentence-ending mark
MIN_PROBABILITY = 1e-10  # lower bound before the logarithm


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Properties of a model that turning its tokens into words depends on."""

    tokenizer: SentencePieceTokenizer
    config: ParakeetConfig
    multilingual: bool  # whether the vocabulary covers more than English


@dataclass(frozen=True, slots=True)
class Token:
    """A text token with its first mel frame, its end (exclusive) and its probability."""

    id: int
    start: int
    end: int
    probability: float


#: The tokens of one word, at least one.
WordTokens = tuple[Token, ...]


def to_tokens(
    emissions: Iterable[Emission],
    tokenizer: SentencePieceTokenizer,
    first: int,
    factor: int,
    limit: int,
) -> list[Token]:
    """Text tokens of a window that begins at mel frame `first`; special tokens are dropped.

    `factor` is the number of mel frames in an encoder frame. No token ends after frame `limit`, the
    end of the audio.
    """
    return [
        Token(
            emission.token,
            min(first + emission.frame * factor, limit),
            min(first + (emission.frame + emission.duration) * factor, limit),
            emission.probability,
        )
        for emission in emissions
        if not tokenizer.is_control(emission.token)
    ]


def group_words(tokens: Iterable[Token], tokenizer: SentencePieceTokenizer) -> list[WordTokens]:
    """Group tokens into words: a word begins at a token that begins with a space.

    A punctuation mark, and a space in front of it, belongs to the word before. A token that is only
    a space belongs to the word after it.
    """
    words: list[list[Token]] = []
    blanks: list[Token] = []  # spaces whose word depends on the next token
    for token in tokens:
        if tokenizer.is_space(token.id):
            blanks.append(token)
            continue
        begins = bool(blanks) or tokenizer.starts_word(token.id)
        if not words or (begins and not tokenizer.is_punctuation(token.id)):
            words.append([])
        words[-1] += [*blanks, token]
        blanks = []
    if blanks:
        words.append(blanks)
    return [tuple(word) for word in words]


class WordTimer:
    """Assigns times to words in order; each depends on the end of the word before."""

    def __init__(self, tokenizer: SentencePieceTokenizer, *, zero_width_punctuation: bool) -> None:
        self._spelling, self._timeless = tokenizer, zero_width_punctuation
        self._before: Token | None = None

    def word(self, spoken: WordTokens) -> Word:
        """A word with its text, start and end in seconds, and probability.

        A word starts no earlier than the previous one ends, unless both start at the same frame, as
        RNN-T allows. With `zero_width_punctuation` a punctuation mark, and a space in front of it,
        starts and ends where the previous token ends. The text begins with a space, except that of
        the first word of a recording and that of a punctuation mark. The probability is the mean
        over the tokens.
        """
        text = self._spelling.decode(token.id for token in spoken)
        if self._before is not None and self._spelling.starts_word(spoken[0].id):
            text = " " + text
        text = self._spelling.strip_space_before_punctuation(text)
        placed = [self._placed(token, is_mark) for token, is_mark in self._with_marks(spoken)]
        return Word(
            start=placed[0].start / FRAMES_PER_SECOND,
            end=placed[-1].end / FRAMES_PER_SECOND,
            word=text,
            probability=sum(token.probability for token in spoken) / len(spoken),
        )

    def copy(self) -> WordTimer:
        """A copy that continues after the same word."""
        return copy(self)

    def _with_marks(self, spoken: WordTokens) -> Iterator[tuple[Token, bool]]:
        """The tokens of a word, and whether each is a punctuation mark or a space before one."""
        is_mark = False
        flags = []
        for token in reversed(spoken):
            is_mark = self._spelling.is_punctuation(token.id) or (
                is_mark and self._spelling.is_space(token.id)
            )
            flags.append(is_mark)
        yield from zip(spoken, reversed(flags), strict=True)

    def _placed(self, token: Token, is_mark: bool) -> Token:
        """The token with its start and end after those of the previous token."""
        if (before := self._before) is not None:
            start = token.start
            if start != before.start:
                start = max(start, before.end)
            end = max(start, token.end, before.end)
            if self._timeless and is_mark:
                start = end = before.end
            token = replace(token, start=start, end=end)
        self._before = token
        return token


class SegmentBuilder:
    """Groups words, in times of the recording, into segments: push words, then call finish.

    A segment ends at the end of a sentence, before a long pause, or at the maximum duration or
    number of words.
    """

    def __init__(self, options: SegmentOptions, *, with_words: bool) -> None:
        self._max_words, self._with_words = options.max_words, with_words
        self._gap = SILENCE_GAP_S if options.silence_gap is None else options.silence_gap
        self._max_duration = MAX_SEGMENT_S if options.max_duration is None else options.max_duration
        self._words: list[tuple[Word, WordTokens]] = []
        self._end = 0.0  # end of the previous segment, in seconds

    def push(self, word: Word, spoken: WordTokens) -> Iterator[Segment]:
        """Add a word; yields the segments that are complete before or with it."""
        if self._words and self._splits_before(word):
            yield self._segment()
        if word.start < self._end:
            word = replace(word, start=self._end, end=max(word.end, self._end))
        self._words.append((word, spoken))
        if ends_sentence(word.word):
            yield self._segment()

    def finish(self) -> Iterator[Segment]:
        """Yields the last segment."""
        if self._words:
            yield self._segment()

    def _splits_before(self, word: Word) -> bool:
        """Whether a segment ends before this word."""
        first, last = self._words[0][0], self._words[-1][0]
        return (
            (self._max_words is not None and len(self._words) >= self._max_words)
            or word.start - last.end >= self._gap
            or word.end - first.start > self._max_duration
        )

    def _segment(self) -> Segment:
        words = tuple(word for word, _ in self._words)
        tokens = [token for _, spoken in self._words for token in spoken]
        self._words, self._end = [], words[-1].end
        return make_segment(words, tokens, with_words=self._with_words)


def ends_sentence(text: str) -> bool:
    """Whether a word ends a sentence; closing quotes and brackets may follow the mark."""
    return text.rstrip(CLOSING).endswith(SENTENCE_ENDS)


def make_segment(words: Sequence[Word], tokens: Sequence[Token], *, with_words: bool) -> Segment:
    """A segment of words. Fields that only Whisper computes have neutral values.

    `seek` is the segment's own start; `temperature` and `no_speech_prob` are 0. `avg_logprob` is
    the mean log-probability of the tokens, without blanks.
    """
    text = "".join(word.word for word in words)
    logs = [log(max(token.probability, MIN_PROBABILITY)) for token in tokens]
    return Segment(
        id=0,  # set by the stream
        seek=round(words[0].start * FRAMES_PER_SECOND),
        start=words[0].start,
        end=words[-1].end,
        text=text,
        tokens=tuple(token.id for token in tokens),
        temperature=0.0,
        avg_logprob=sum(logs) / len(logs),
        compression_ratio=compression_ratio(text),
        no_speech_prob=0.0,
        words=tuple(words) if with_words else None,
    )
