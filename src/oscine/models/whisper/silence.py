"""Text that the model makes up where nothing is said: told by its words, cut with the silence.

Source: whisper/transcribe.py, the branch of hallucination_silence_threshold. It takes sound as done
that no text was looked for in: up to the threshold where a window cuts off the text, up to the
threshold at the recording's end, up to a second where made-up text is dropped. Here all of it is
decoded, and text over which the detector hears speech is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oscine.models.whisper.words import WindowTimes, last_word_end
from oscine.options.transcribe import APPEND_PUNCTUATIONS, PREPEND_PUNCTUATIONS
from oscine.types import Segment, Word

PUNCTUATION = PREPEND_PUNCTUATIONS + APPEND_PUNCTUATIONS
WORDS_JUDGED = 8
NEAR = 2.0  # seconds from the window's border that count as silence
IMPROBABLE, SHORT, LONG = 0.15, 0.133, 2.0
LEAST_SKIP, MOST_SKIP = 0.1, 1.0  # seconds, where dropped text begins with its window


def anomaly(word: Word) -> float:
    """How much a word looks made up: improbable, or too short or too long (seconds)."""
    length = word.end - word.start
    score = 1.0 if word.probability < IMPROBABLE else 0.0
    return score + 15 * max(0.0, SHORT - length) + max(0.0, length - LONG)


def is_anomaly(words: Sequence[Word] | None) -> bool:
    """Whether a segment with these words is probably made up; never without words."""
    if not words:
        return False
    judged = [word for word in words if word.word not in PUNCTUATION][:WORDS_JUDGED]
    score = sum(map(anomaly, judged))
    return score >= 3 or score + 0.01 >= len(judged)


def skip_silences(
    segments: Sequence[Segment],
    window: WindowTimes,
    threshold: float,
    *,
    single_ending: bool,
    is_speech: Callable[[float, float], bool] = lambda start, end: False,
) -> tuple[list[Segment], float | None]:
    """The segments of a window to keep, and where to seek to (None: where it was going).

    openai-whisper's rule, in seconds, but for what it passes over: (i) text cut off by the window's
    end is taken up where the last word ends; (ii) a first segment that looks made up, after more
    than `threshold` of silence, is not kept, nor is what follows: on from where it begins; (iii)
    the same for any segment that looks made up between silences, or before another such.

    `single_ending`: the tokens end in text and one timestamp. `is_speech`: whether speech is heard
    between two times, as far as it is known. Segments are add_words' own.
    """
    start, window_end, content_end = window.start, window.end, window.content_end
    done = min(window_end, content_end)
    seek = None
    last = last_word_end(segments)
    if not single_ending and last is not None and last > start:
        seek = last
    first = next((segment for segment in segments if segment.words), None)
    if first is not None and is_anomaly(first.words) and first.start - start > threshold:
        return [], first.start
    before = window.last_speech
    for at, segment in enumerate(segments):
        if not segment.words:
            continue
        if is_anomaly(segment.words) and not is_speech(segment.start, segment.end):
            after = next((other.words for other in segments[at + 1 :] if other.words), None)
            next_start = after[0].start if after else done
            silence_before = (
                segment.start - before > threshold
                or segment.start < threshold
                or segment.start - start < NEAR
            )
            silence_after = (
                next_start - segment.end > threshold
                or is_anomaly(after)
                or window_end - segment.end < NEAR
            )
            if silence_before and silence_after:
                heard = after is None and content_end <= window_end
                if content_end - segment.end < threshold and heard:
                    return list(segments[:at]), content_end
                return list(segments[:at]), _after_dropped(segment, start)
        before = segment.end
    return list(segments), seek


def _after_dropped(segment: Segment, start: float) -> float:
    """Where the next window begins after a segment is dropped, in seconds.

    That is where the segment begins, or, where this is at the beginning of its own window, which
    has been decoded, where it ends: at least LEAST_SKIP and at most MOST_SKIP further.
    """
    if segment.start >= start + MOST_SKIP:
        return segment.start
    return min(start + MOST_SKIP, max(start + LEAST_SKIP, segment.end))
