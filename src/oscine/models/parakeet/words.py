"""Labels with frames to words with seconds, and words to segments.

Source: NeMo nemo/collections/asr/parts/utils/timestamp_utils.py (get_words_offsets) for words,
nemo/collections/asr/parts/submodules/rnnt_decoding.py (_refine_timestamps_tdt) for the times of
punctuation; parakeet-mlx alignment.py for where sentences end.
Times inside here are mel frames of 10 ms of what is listened to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import log

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.sequences import Emission
from oscine.options.transcribe import MAX_DURATION, SILENCE_GAP, SegmentOptions
from oscine.text.compression import compression_ratio
from oscine.text.pieces import Pieces
from oscine.types import Segment, Word

SENTENCE_ENDS = tuple(".!?。？！")
CLOSING = "\"'”’»)]」』"  # may follow the end of a sentence and still belong to it
MIN_PROBABILITY = 1e-10  # below which the logarithm is of no use to anybody


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What turns a checkpoint's labels into words: their tokenizer, and the network's sizes."""

    tokenizer: Pieces
    config: ParakeetConfig
    multilingual: bool  # the labels are those of more than English


@dataclass(frozen=True, slots=True)
class Token:
    """A label that is text, and the mel frames from which to which it is said."""

    id: int
    start: int
    end: int
    probability: float


#: The labels of one word, at least one.
WordTokens = tuple[Token, ...]


def to_tokens(
    emissions: Iterable[Emission], tokenizer: Pieces, first: int, factor: int, limit: int
) -> list[Token]:
    """Emissions of a window that begins at mel frame `first`; what is no text is left out.

    Nothing ends after the frame `limit`, where the audio does.
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


def group_words(tokens: Iterable[Token], tokenizer: Pieces) -> list[WordTokens]:
    """A word begins with a label that begins with a space; the first with whatever comes first.

    A punctuation mark belongs to the word before it, with the space in front of it. Other spaces
    alone are no word, but begin the one after them.
    """
    words: list[list[Token]] = []
    blanks: list[Token] = []  # whose word depends on the label after them
    for token in tokens:
        if tokenizer.is_blank(token.id):
            blanks.append(token)
            continue
        begins = bool(blanks) or tokenizer.starts_word(token.id)
        if not words or (begins and not tokenizer.is_mark(token.id)):
            words.append([])
        words[-1] += [*blanks, token]
        blanks = []
    if blanks:
        words.append(blanks)
    return [tuple(word) for word in words]


class WordTimer:
    """Words one after another, each told what came before it."""

    def __init__(self, tokenizer: Pieces, *, zero_width_punctuation: bool) -> None:
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
        text = self._spelling.without_space_before_marks(text)
        placed = [self._placed(token, is_mark) for token, is_mark in self._with_marks(spoken)]
        return Word(
            start=placed[0].start / FRAMES_PER_SECOND,
            end=placed[-1].end / FRAMES_PER_SECOND,
            word=text,
            probability=sum(token.probability for token in spoken) / len(spoken),
        )

    def copy(self) -> WordTimer:
        """Another that goes on from here."""
        return copy(self)

    def _with_marks(self, spoken: WordTokens) -> Iterator[tuple[Token, bool]]:
        """The labels of a word, and whether each is a mark, or spaces before one."""
        is_mark = False
        flags = []
        for token in reversed(spoken):
            is_mark = self._spelling.is_mark(token.id) or (
                is_mark and self._spelling.is_blank(token.id)
            )
            flags.append(is_mark)
        yield from zip(spoken, reversed(flags), strict=True)

    def _placed(self, token: Token, is_mark: bool) -> Token:
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
    """Words, in the times of the recording, to segments: push them, then finish."""

    def __init__(self, rules: SegmentOptions, *, with_words: bool) -> None:
        self._max_words, self._with_words = rules.max_words, with_words
        self._gap = SILENCE_GAP if rules.silence_gap is None else rules.silence_gap
        self._longest = MAX_DURATION if rules.max_duration is None else rules.max_duration
        self._held: list[tuple[Word, WordTokens]] = []
        self._end = 0.0  # of the segment before

    def push(self, word: Word, spoken: WordTokens) -> Iterator[Segment]:
        """Take a word; the segments that are complete before it, or with it."""
        if self._held and self._parts(word):
            yield self._segment()
        if word.start < self._end:
            word = replace(word, start=self._end, end=max(word.end, self._end))
        self._held.append((word, spoken))
        if ends_sentence(word.word):
            yield self._segment()

    def finish(self) -> Iterator[Segment]:
        """What is left."""
        if self._held:
            yield self._segment()

    def _parts(self, word: Word) -> bool:
        """Whether a segment ends before this word."""
        first, last = self._held[0][0], self._held[-1][0]
        return (
            (self._max_words is not None and len(self._held) >= self._max_words)
            or word.start - last.end >= self._gap
            or word.end - first.start > self._longest
        )

    def _segment(self) -> Segment:
        words = tuple(word for word, _ in self._held)
        tokens = [token for _, spoken in self._held for token in spoken]
        self._held, self._end = [], words[-1].end
        return make_segment(words, tokens, with_words=self._with_words)


def ends_sentence(text: str) -> bool:
    """Whether a sentence ends with this word."""
    return text.rstrip(CLOSING).endswith(SENTENCE_ENDS)


def make_segment(words: Sequence[Word], tokens: Sequence[Token], *, with_words: bool) -> Segment:
    """Words as a segment. What only Whisper knows has neutral values.

    `seek` is where the segment itself begins, `temperature` and `no_speech_prob` are 0.
    `avg_logprob` is the mean of the labels' log-probabilities, without the blanks between them.
    """
    text = "".join(word.word for word in words)
    logs = [log(max(token.probability, MIN_PROBABILITY)) for token in tokens]
    return Segment(
        id=0,  # the stream counts
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
