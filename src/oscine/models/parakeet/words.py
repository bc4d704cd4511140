"""Labels with frames to words with seconds, and words to segments.

Source: NeMo nemo/collections/asr/parts/submodules/rnnt_decoding.py (words, and
_refine_timestamps_tdt for punctuation); parakeet-mlx alignment.py for where sentences end.
Times inside here are mel frames of 10 ms of what is listened to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import log

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.models.parakeet.options import Segmenting
from oscine.models.parakeet.request import Emission
from oscine.models.whisper.fallback import compression_ratio
from oscine.text.pieces import SPACE, Pieces
from oscine.types import Segment, Word

#: Labels that take no time with TDT: they begin and end where the label before them ends.
TIMELESS = frozenset("?'¡¿-:,%/.!")
SENTENCE_ENDS = tuple(".!?。？！")
CLOSING = "\"'”’»)]」』"  # may follow the end of a sentence and still belong to it
LEAST_PROBABILITY = 1e-10  # below which the logarithm is of no use to anybody


@dataclass(frozen=True, slots=True)
class Token:
    """A label that is text, and the mel frames from which to which it is said."""

    id: int
    start: int
    end: int
    probability: float


#: The labels of one word, at least one.
Spoken = tuple[Token, ...]


def tokens_of(
    emissions: Iterable[Emission], spelling: Pieces, first: int, factor: int, limit: int
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
        if not spelling.is_control(emission.token)
    ]


def spoken_words(tokens: Iterable[Token], spelling: Pieces) -> list[Spoken]:
    """A word begins with a label that begins with a space; the first with whatever comes first.

    Spaces alone are no word, but begin the one after them.
    """
    words: list[list[Token]] = []
    for token in tokens:
        blank = words and all(spelling.names[before.id] == SPACE for before in words[-1])
        if not words or (spelling.starts_word(token.id) and not blank):
            words.append([])
        words[-1].append(token)
    return [tuple(word) for word in words]


class Timing:
    """Words one after another, each told what came before it."""

    def __init__(self, spelling: Pieces, *, timeless: bool) -> None:
        self._spelling = spelling
        self._timeless = TIMELESS if timeless else frozenset()
        self._before: Token | None = None

    def word(self, spoken: Spoken) -> Word:
        """The word with its text and seconds.

        It begins no earlier than the word before it ends, unless both begin with the same frame,
        as some words of RNN-T do. With `timeless` punctuation takes no time. The first
        word of a recording has no space in front. The probability is the mean of its labels'.
        """
        text = self._spelling.decode(token.id for token in spoken)
        if self._before is not None and self._spelling.starts_word(spoken[0].id):
            text = " " + text
        placed = [self._placed(token) for token in spoken]
        return Word(
            start=placed[0].start / FRAMES_PER_SECOND,
            end=placed[-1].end / FRAMES_PER_SECOND,
            word=text,
            probability=sum(token.probability for token in spoken) / len(spoken),
        )

    def copy(self) -> Timing:
        """Another that goes on from here."""
        return copy(self)

    def _placed(self, token: Token) -> Token:
        if (before := self._before) is not None:
            start = token.start
            if start != before.start:
                start = max(start, before.end)
            end = max(start, token.end, before.end)
            if self._spelling.names[token.id] in self._timeless:
                start = end = before.end
            token = replace(token, start=start, end=end)
        self._before = token
        return token


class Segmenter:
    """Words, in the times of the recording, to segments: push them, then finish."""

    def __init__(self, rules: Segmenting, *, with_words: bool) -> None:
        self._rules, self._with_words = rules, with_words
        self._held: list[tuple[Word, Spoken]] = []
        self._end = 0.0  # of the segment before

    def push(self, word: Word, spoken: Spoken) -> Iterator[Segment]:
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
        rules, first, last = self._rules, self._held[0][0], self._held[-1][0]
        return (
            (rules.max_words is not None and len(self._held) >= rules.max_words)
            or word.start - last.end >= rules.silence_gap
            or word.end - first.start > rules.max_duration
        )

    def _segment(self) -> Segment:
        words = tuple(word for word, _ in self._held)
        tokens = [token for _, spoken in self._held for token in spoken]
        self._held, self._end = [], words[-1].end
        return segment_of(words, tokens, with_words=self._with_words)


def ends_sentence(text: str) -> bool:
    """Whether a sentence ends with this word."""
    return text.rstrip(CLOSING).endswith(SENTENCE_ENDS)


def segment_of(words: Sequence[Word], tokens: Sequence[Token], *, with_words: bool) -> Segment:
    """Words as a segment. What only Whisper knows has neutral values.

    `seek` is where the segment itself begins, `temperature` and `no_speech_prob` are 0.
    `avg_logprob` is the mean of the labels' log-probabilities, without the blanks between them.
    """
    text = "".join(word.word for word in words)
    logs = [log(max(token.probability, LEAST_PROBABILITY)) for token in tokens]
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
