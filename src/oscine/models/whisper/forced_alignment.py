"""Forced alignment: the times of the words of a given text in the audio of one window.

Source: whisper/timing.py, find_alignment, with a given text in place of decoded text.
"""

from __future__ import annotations

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.engine.generators import SequenceGenerator
from oscine.engine.sequence import EncoderInput
from oscine.errors import UsageError
from oscine.models.whisper.features import Windows
from oscine.models.whisper.language import language_probs, most_likely_language
from oscine.models.whisper.sequences import AlignmentSequence
from oscine.models.whisper.timing import LANGUAGES_WITHOUT_SPACES, find_alignment
from oscine.models.whisper.tokens import TextDecoderInfo
from oscine.models.whisper.words import WindowTimes, add_word_timestamps
from oscine.options.transcribe import WordOptions
from oscine.types import Segment, Word

FRAMES_PER_POSITION = 2


def normalize_text(text: str) -> str:
    """The text with single spaces. Raises UsageError if it is blank or not a str."""
    if not isinstance(text, str):
        raise UsageError(f"the text to align must be a str, not {type(text).__name__}")
    words = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    if not words:
        raise UsageError("there is no text to align")
    return words


def check_duration(features: Windows, name: str) -> None:
    """Raise UsageError if the audio is longer than a window or shorter than 20 ms."""
    seconds, maximum = features.duration, features.window_frames / FRAMES_PER_SECOND
    if seconds > maximum:
        raise UsageError(
            f"{name}: {seconds:.2f} s is longer than the {maximum:g} s that can be aligned at "
            "once; cut the audio and its text into parts"
        )
    if features.frames < FRAMES_PER_POSITION:
        raise UsageError(f"{name}: {seconds:.3f} s is too short to align a text to")


def align_text(
    features: Windows, text: str, language: str | None, info: TextDecoderInfo
) -> SequenceGenerator[tuple[Word, ...]]:
    """The words of a text with their times in seconds, in order and without overlap.

    Each word starts with its space, so that the joined words are the text. `language`: a code;
    None: detected. Raises UsageError if the text has too many tokens.
    """
    special_tokens, frames = info.special_tokens, features.frames
    audio = EncoderInput(features.window(0, frames))
    if language is None and special_tokens.multilingual:
        language = most_likely_language((yield from language_probs(audio, special_tokens)))
    language = language or "en"
    spoken = text if language in LANGUAGES_WITHOUT_SPACES else f" {text}"
    ids = info.tokenizer.encode(spoken)
    start = special_tokens.sot_sequence(language, "transcribe", timestamps=False)
    max_tokens = info.config.n_text_ctx - len(start) - 1
    if len(ids) > max_tokens:
        raise UsageError(
            f"the text has {len(ids)} tokens; at most {max_tokens} can be aligned at once; cut the "
            "audio and its text into parts"
        )
    prompt = (*start, *ids, special_tokens.eot)
    alignment = yield AlignmentSequence(
        audio, prompt, special_tokens.eot, frames // FRAMES_PER_POSITION
    )
    timings = find_alignment(alignment, ids, len(start), info.tokenizer, language)
    end = features.duration
    whole = Segment(0, 0, 0.0, end, spoken, ids, 0.0, 0.0, 0.0, 0.0)
    times = WindowTimes(0.0, features.window_frames / FRAMES_PER_SECOND, end, 0.0)
    (timed,), _ = add_word_timestamps([whole], timings, times, WordOptions(), special_tokens.eot)
    return timed.words or ()
