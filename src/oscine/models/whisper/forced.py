"""Known words to audio of one window: when each of them is spoken.

Source: whisper/timing.py, find_alignment, with the text given in place of one that was decoded.
"""

from __future__ import annotations

from oscine.audio.windows import Features
from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps
from oscine.errors import UsageError
from oscine.models.whisper.language import language_probs, most_likely
from oscine.models.whisper.sequences import Align
from oscine.models.whisper.timing import WITHOUT_SPACES, align_words
from oscine.models.whisper.tokens import TextSide
from oscine.models.whisper.words import WindowTimes, add_words
from oscine.options.transcribe import WordOptions
from oscine.types import Segment, Word

FRAMES_PER_SECOND, FRAMES_PER_POSITION = 100, 2


def check_text(text: str) -> str:
    """The text with one space between words. Raises UsageError for none, and for no text."""
    if not isinstance(text, str):
        raise UsageError(f"the text to align must be a str, not {type(text).__name__}")
    words = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    if not words:
        raise UsageError("there is no text to align")
    return words


def check_sound(features: Features, name: str) -> None:
    """Raises UsageError for audio of more than a window, and for none; `name` as messages say."""
    seconds, most = features.duration, features.window_frames / FRAMES_PER_SECOND
    if seconds > most:
        raise UsageError(
            f"{name}: {seconds:.2f} s are more than the {most:g} s that can be aligned at once; "
            "cut the audio and its text into parts"
        )
    if features.frames < FRAMES_PER_POSITION:
        raise UsageError(f"{name}: {seconds:.3f} s are too short to align a text with")


def align_text(
    features: Features, text: str, language: str | None, side: TextSide
) -> Steps[tuple[Word, ...]]:
    """The words of a text in seconds of the audio, in order and without overlap.

    Joined, they are the text; each begins with its space, as words of a transcript do. `language`:
    a code, None: that of the audio. Raises UsageError for more text than the model has room for.
    """
    tokens, frames = side.tokens, features.frames
    audio = EncoderInput(features.window(0, frames))
    if language is None and tokens.multilingual:
        language = most_likely((yield from language_probs(audio, tokens)))
    language = language or "en"
    spoken = text if language in WITHOUT_SPACES else f" {text}"
    ids = side.tokenizer.encode(spoken)
    start = tokens.start_sequence(language, "transcribe", timestamps=False)
    room = side.config.n_text_ctx - len(start) - 1
    if len(ids) > room:
        raise UsageError(
            f"the text has {len(ids)} tokens, and {room} can be aligned at once; cut the audio and "
            "its text into parts"
        )
    prompt = (*start, *ids, tokens.end)
    alignment = yield Align(audio, prompt, tokens.end, frames // FRAMES_PER_POSITION)
    timings = align_words(alignment, ids, len(start), side.tokenizer, language)
    end = features.duration
    whole = Segment(0, 0, 0.0, end, spoken, ids, 0.0, 0.0, 0.0, 0.0)
    times = WindowTimes(0.0, features.window_frames / FRAMES_PER_SECOND, end, 0.0)
    (timed,), _ = add_words([whole], timings, times, WordOptions(), tokens.end)
    return timed.words or ()
