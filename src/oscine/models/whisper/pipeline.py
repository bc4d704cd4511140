"""The public model: a recording in; text, language or the encoder's output out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscine.audio.io import SourceLike, open_source
from oscine.audio.speech import survey
from oscine.audio.vad import VadOptions
from oscine.audio.windows import Features, Recording
from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps, run
from oscine.errors import UsageError
from oscine.models import local_agreement
from oscine.models.cancel import Cancel, as_should_stop
from oscine.models.live_audio import BufferTranscriber
from oscine.models.transcription import Progress, Transcriber, vad_options
from oscine.models.whisper.forced import align_text, check_sound, check_text
from oscine.models.whisper.language import detect_language, window_starts
from oscine.models.whisper.options import OPTIONS
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.stream import Stream
from oscine.models.whisper.tokens import TextSide, Tokens, resolve, suppressed
from oscine.models.whisper.window import DecodedWindow, decode_window, window_language
from oscine.options.transcribe import DecodingOptions
from oscine.text.whisper import Tokenizer
from oscine.types import Update, Word

T = TypeVar("T")


class Whisper(Transcriber[WhisperRunner]):
    """A loaded model."""

    def __init__(
        self,
        runner: WhisperRunner,
        tokenizer: Tokenizer | None,
        name: str,
        rebuild: Callable[[], WhisperRunner] | None = None,
    ) -> None:
        super().__init__(runner, name, rebuild)
        self.tokenizer = tokenizer
        self._tokens: Tokens | None = resolve(tokenizer, runner.config) if tokenizer else None

    @property
    def multilingual(self) -> bool:
        """Whether it knows languages other than English."""
        return self._tokens is not None and self._tokens.multilingual

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of the languages that it knows."""
        return tuple(self._tokens.languages) if self._tokens and self.multilingual else ("en",)

    def stream(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Stream:
        """Segments as windows are finished; to cancel, stop iterating. Otherwise as transcribe.

        `options`: fields of TranscribeOptions, in openai-whisper's forms. With split_channels, the
        segments of one channel come after those of the other.
        """
        checked = OPTIONS.of(**options)
        source = open_source(audio)
        self._check(checked)
        return Stream(self, self._text_side(), source, checked, progress, cancel)

    def listen(
        self,
        pieces: Iterable[Any],
        *,
        latency: float = local_agreement.DEFAULT_LATENCY_S,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Iterator[Update]:
        """Words as they are said, of audio as it comes: those that two runs in a row agree on.

        `pieces`: arrays of samples [n] at 16 kHz, of any length. What was said is transcribed anew
        every half of the `latency`, in seconds of audio; a word on which the runs do not agree is
        final after 28 s. `cancel` is asked before each piece; what was heard is then finished.
        Raises UsageError, AudioError, NonFiniteError, DeviceError.
        """
        options.pop("word_timestamps", None)
        checked = OPTIONS.of(**options, word_timestamps=True)
        self._check(checked)
        for name in ("clip_timestamps", "split_channels", "without_timestamps", "multilingual"):
            if name in options:
                raise UsageError(f"{name} does not go with listening; leave it out")
        options["language"] = checked.language
        if vad_options(checked) is None:
            options["vad_filter"] = False  # where that is not our choice, it is told once
        cancelled = as_should_stop(cancel)
        return local_agreement.listen(
            BufferTranscriber(self.stream), pieces, latency, cancelled, options
        )

    def detect_language(
        self, audio: SourceLike, segments: int = 4, threshold: float | None = 0.5
    ) -> tuple[str, dict[str, float]]:
        """The code of the language that is spoken, and the probability of each code.

        Listens to speech alone, and to no more than `segments` windows: one whose language has a
        probability above `threshold` settles it, else they vote. Raises UsageError if the model
        knows only English.
        """
        tokens = self._text_side().tokens
        if not tokens.multilingual:
            raise self._english_only("cannot detect languages")
        speech = survey(open_source(audio), vad=VadOptions())
        features = self._features(speech.recording)
        starts = window_starts([(0, features.frames)], features.window_frames, segments)
        windows = (EncoderInput(features.window(seek, features.frames - seek)) for seek in starts)
        return self._computed(detect_language(windows, tokens, threshold))

    def window_language(self, mel: NDArray[np.float32]) -> tuple[str, dict[str, float]]:
        """As detect_language, of one window that the caller has made: see decode_window."""
        text = self._text_side()
        if not text.tokens.multilingual:
            raise self._english_only("cannot detect languages")
        return self._computed(window_language(mel, text))

    def decode_window(
        self, mel: NDArray[np.float32], prompt: Sequence[int] = (), **options: Any
    ) -> DecodedWindow:
        """What one window says, whose log-mel the caller has made: audio.mel.log_mel of 30 s.

        `mel`: float32 [frames, n_mels], finite, of the model's sizes. `prompt`: ids of the text
        before it, in place of an initial_prompt. `options`: those of `stream` that concern one
        window. Raises UsageError, NonFiniteError, DeviceError.
        """
        checked = OPTIONS.of(**options)
        self._check(checked)
        return self._computed(decode_window(mel, prompt, self._text_side(), checked))

    def align(self, audio: SourceLike, text: str, language: str | None = None) -> tuple[Word, ...]:
        """When each word of a known text is spoken: forced alignment, by the cross-attention.

        `audio`: up to a window (30 s), of any rate; an array is at 16 kHz, or (samples, rate).
        `text`: what is said in it, which is not checked. `language`: of the text; None: the
        model listens for it. Words are as those of word_timestamps: in seconds, in order, without
        overlap; joined, they are the text with single spaces. Raises UsageError for longer audio
        or text and for none, AudioError, NonFiniteError, DeviceError.
        """
        checked = OPTIONS.of(language=language)
        self._check(checked)
        words, source = check_text(text), open_source(audio)
        features = self._features(source)
        check_sound(features, source.name)
        return self._computed(align_text(features, words, checked.language, self._text_side()))

    def encode(self, audio: SourceLike) -> NDArray[np.float32]:
        """The encoder's output for the first window: [n_audio_ctx, n_audio_state].

        What it computes on the way: oscine.probe.
        """
        features = self._features(open_source(audio))
        mel = features.window(0, features.frames)
        return self.engine.call(partial(WhisperRunner.encode_alone, mel=mel))

    def _computed(self, steps: Steps[T]) -> T:
        """What the steps of a request return."""
        return run(self.engine.submit, steps)

    def _features(self, recording: Recording) -> Features:
        config = self.runner.config
        return Features(recording, config.n_mels, config.window_frames)

    def _text_side(self) -> TextSide:
        """What its text decoder reads and writes; UsageError where it has none."""
        if self.tokenizer is None or self._tokens is None:
            raise UsageError(f"{self.name} has no text decoder; only encode() can be used")
        return TextSide(self.tokenizer, self._tokens, self.runner.config)

    def _check(self, options: DecodingOptions) -> None:
        """Refuse what this model cannot do."""
        text = self._text_side()
        tokens = text.tokens
        suppressed(options.suppress_tokens, text.tokenizer, tokens, text.config)
        if not tokens.multilingual:
            if options.task == "translate":
                raise self._english_only("cannot translate")
            if options.multilingual:
                raise self._english_only("cannot detect languages")
            if options.language not in (None, "en"):
                raise self._english_only(f"does not know language {options.language}")
        elif options.language is not None and options.language not in tokens.languages:
            raise UsageError(
                f"{self.name} does not know language {options.language}; it knows "
                f"{', '.join(tokens.languages)}"
            )

    def _english_only(self, problem: str) -> UsageError:
        return UsageError(
            f"{self.name} is English-only and {problem}; use a multilingual model, such as base"
        )
