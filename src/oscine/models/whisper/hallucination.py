"""Removes hallucinated text around silence, which its words' probabilities and durations show.

Source: whisper/transcribe.py, the branch of hallucination_silence_threshold. Upstream skips audio
without decoding it: up to the threshold where a window cuts off the text, up to the threshold at
the recording's end, and up to a second where hallucinated text is dropped. Here all audio is
decoded, and text is kept where voice activity detection finds speech.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oscine.models.whisper.words import WindowTimes, last_word_end
from oscine.options.transcribe import APPEND_PUNCTUATIONS, PREPEND_PUNCTUATIONS
from oscine.types import Segment, Word

PUNCTUATION = PREPEND_PUNCTUATIONS + APPEND_PUNCTUATIONS
MAX_SCORED_WORDS = 8  # of a segment
WINDOW_EDGE_S = 2.0  # a segment this close to the window's edge has silence there
MIN_WORD_PROBABILITY, MIN_WORD_S, MAX_WORD_S = 0.15, 0.133, 2.0  # of a plausible word
MIN_SKIP_S, MAX_SKIP_S = 0.1, 1.0  # after dropped text at the start of its window


def word_anomaly_score(word: Word) -> float:
    """How implausible a word is: improbable, too short or too long."""
    duration = word.end - word.start
    score = 1.0 if word.probability < MIN_WORD_PROBABILITY else 0.0
    return score + 15 * max(0.0, MIN_WORD_S - duration) + max(0.0, duration - MAX_WORD_S)


def is_segment_anomaly(words: Sequence[Word] | None) -> bool:
    """Whether a segment with these words is probably hallucinated; False without words."""
    if not words:
        return False
    scored = [word for word in words if word.word not in PUNCTUATION][:MAX_SCORED_WORDS]
    score = sum(map(word_anomaly_score, scored))
    return score >= 3 or score + 0.01 >= len(scored)


def skip_hallucinations(
    segments: Sequence[Segment],
    window: WindowTimes,
    threshold: float,
    *,
    single_ending: bool,
    is_speech: Callable[[float, float], bool] = lambda start, end: False,
) -> tuple[list[Segment], float | None]:
    """The segments of a window to keep, and the time to seek to (None: unchanged), in seconds.

    openai-whisper's rules: (i) text cut off by the window's end is decoded again from the end of
    the last word; (ii) a first segment that is an anomaly, after more than `threshold` of silence,
    is dropped with all that follow, and decoding resumes at its start; (iii) so is any segment
    that is an anomaly between silences, or before another anomaly.

    `single_ending`: the tokens end in text and one timestamp. `is_speech`: whether there is speech
    between two times, as far as known. `segments`: with words, as add_word_timestamps returns.
    """
    start, window_end, content_end = window.start, window.end, window.content_end
    done = min(window_end, content_end)
    seek = None
    last = last_word_end(segments)
    if not single_ending and last is not None and last > start:
        seek = last
    first = next((segment for segment in segments if segment.words), None)
    if first is not None and is_segment_anomaly(first.words) and first.start - start > threshold:
        return [], first.start
    before = window.last_speech
    for index, segment in enumerate(segments):
        if not segment.words:
            continue
        if is_segment_anomaly(segment.words) and not is_speech(segment.start, segment.end):
            after = next((other.words for other in segments[index + 1 :] if other.words), None)
            next_start = after[0].start if after else done
            silence_before = (
                segment.start - before > threshold
                or segment.start < threshold
                or segment.start - start < WINDOW_EDGE_S
            )
            silence_after = (
                next_start - segment.end > threshold
                or is_segment_anomaly(after)
                or window_end - segment.end < WINDOW_EDGE_S
            )
            if silence_before and silence_after:
                is_last = after is None and content_end <= window_end
                if content_end - segment.end < threshold and is_last:
                    return list(segments[:index]), content_end
                return list(segments[:index]), _seek_after_dropped(segment, start)
        before = segment.end
    return list(segments), seek


def _seek_after_dropped(segment: Segment, start: float) -> float:
    """The start of the next window after a segment is dropped, in seconds.

    That is the start of the segment. If it starts with its window, which has been decoded already,
    it is the segment's end, at least MIN_SKIP_S and at most MAX_SKIP_S further.
    """
    if segment.start >= start + MAX_SKIP_S:
        return segment.start
    return min(start + MAX_SKIP_S, max(start + MIN_SKIP_S, segment.end))
