"""The public Whisper model: transcription, live audio, language detection, alignment, encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscine.audio.features import Recording
from oscine.audio.io import SourceLike, open_source
from oscine.audio.speech import detect_speech
from oscine.audio.vad import VadOptions
from oscine.engine.generators import SequenceGenerator, run
from oscine.engine.sequence import EncoderInput
from oscine.errors import UsageError
from oscine.models import local_agreement
from oscine.models.cancel import Cancel, as_should_stop
from oscine.models.live_audio import BufferTranscriber
from oscine.models.transcription import Progress, Transcriber, vad_options
from oscine.models.whisper.decode_window import DecodedWindow, decode_window, window_language
from oscine.models.whisper.features import Windows, recording_windows
from oscine.models.whisper.forced_alignment import align_text, check_duration, normalize_text
from oscine.models.whisper.language import detect_language, window_starts
from oscine.models.whisper.options import OPTIONS
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.tokens import (
    SpecialTokens,
    TextDecoderInfo,
    resolve_special_tokens,
    suppressed_tokens,
)
from oscine.models.whisper.transcribe import WhisperTranscription
from oscine.options.transcribe import DecodingOptions
from oscine.text.whisper import WhisperTokenizer
from oscine.types import Update, Word

T = TypeVar("T")


class Whisper(Transcriber[WhisperRunner]):
    """A Whisper model on a device, for any number of threads and tasks."""

    def __init__(
        self,
        runner: WhisperRunner,
        tokenizer: WhisperTokenizer | None,
        name: str,
        rebuild: Callable[[], WhisperRunner] | None = None,
    ) -> None:
        super().__init__(runner, name, rebuild)
        self.tokenizer = tokenizer
        self._special_tokens: SpecialTokens | None = (
            resolve_special_tokens(tokenizer, runner.config) if tokenizer else None
        )

    @property
    def multilingual(self) -> bool:
        """Whether it supports languages other than English."""
        return self._special_tokens is not None and self._special_tokens.multilingual

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of the languages that it supports."""
        return (
            tuple(self._special_tokens.languages)
            if self._special_tokens and self.multilingual
            else ("en",)
        )

    def stream(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> WhisperTranscription:
        """A transcription that yields segments as windows are finished; to cancel, stop iterating.

        Arguments and errors are those of `transcribe`. `options`: fields of TranscribeOptions, in
        openai-whisper's forms. With split_channels, the channels follow each other.
        """
        checked = OPTIONS.of(**options)
        source = open_source(audio)
        self._check_options(checked)
        return WhisperTranscription(
            self, self._require_text_decoder(), source, checked, progress, cancel
        )

    def listen(
        self,
        pieces: Iterable[Any],
        *,
        latency: float = local_agreement.DEFAULT_LATENCY_S,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Iterator[Update]:
        """Transcribe live audio; yields updates whose words are final once two runs agree on them.

        Args:
            pieces: Arrays of samples [n] at 16 kHz, of any length, as they arrive.
            latency: Seconds of audio until a word is final, if runs agree: the last seconds are
                transcribed again each half of it. Words on which they differ are final after 28 s.
            cancel: Polled before each piece; the audio so far is then transcribed to its end.
            options: Fields of TranscribeOptions.

        Raises:
            UsageError, AudioError, NonFiniteError, DeviceError.
        """
        options.pop("word_timestamps", None)
        checked = OPTIONS.of(**options, word_timestamps=True)
        self._check_options(checked)
        for name in ("clip_timestamps", "split_channels", "without_timestamps", "multilingual"):
            if name in options:
                raise UsageError(f"{name} is not supported in live transcription; leave it out")
        options["language"] = checked.language
        if vad_options(checked) is None:
            options["vad_filter"] = False  # so that a missing detector is reported once
        cancelled = as_should_stop(cancel)
        return local_agreement.listen(
            BufferTranscriber(self.stream), pieces, latency, cancelled, options
        )

    def detect_language(
        self, audio: SourceLike, segments: int = 4, threshold: float | None = 0.5
    ) -> tuple[str, dict[str, float]]:
        """The code of the spoken language, and the probability of each code.

        At most `segments` windows of speech are tried, until one has a language with a probability
        above `threshold`; if none has, the majority decides. Raises UsageError if the model is
        English-only.
        """
        special_tokens = self._require_text_decoder().special_tokens
        if not special_tokens.multilingual:
            raise self._english_only("cannot detect languages")
        speech = detect_speech(open_source(audio), vad=VadOptions())
        features = self._features(speech.recording)
        starts = window_starts([(0, features.frames)], features.window_frames, segments)
        windows = (EncoderInput(features.window(seek, features.frames - seek)) for seek in starts)
        return self._run_steps(detect_language(windows, special_tokens, threshold))

    def window_language(self, mel: NDArray[np.float32]) -> tuple[str, dict[str, float]]:
        """The language of one window, given as a log-mel, and the probability of each code.

        `mel`: float32 [frames, n_mels], as for decode_window. Raises UsageError if the model is
        English-only, NonFiniteError, DeviceError.
        """
        info = self._require_text_decoder()
        if not info.special_tokens.multilingual:
            raise self._english_only("cannot detect languages")
        return self._run_steps(window_language(mel, info))

    def decode_window(
        self, mel: NDArray[np.float32], prompt: Sequence[int] = (), **options: Any
    ) -> DecodedWindow:
        """Decode one window, given as a log-mel: audio.mel.log_mel of 30 s of audio.

        `mel`: float32 [frames, n_mels], finite, of the model's sizes. `prompt`: ids of the text
        before the window, in place of initial_prompt. `options`: the fields of TranscribeOptions
        that concern one window. Raises UsageError, NonFiniteError, DeviceError.
        """
        checked = OPTIONS.of(**options)
        self._check_options(checked)
        return self._run_steps(decode_window(mel, prompt, self._require_text_decoder(), checked))

    def align(self, audio: SourceLike, text: str, language: str | None = None) -> tuple[Word, ...]:
        """Forced alignment: the times of the words of a known text, by cross-attention.

        Args:
            audio: At most a window (30 s), of any rate; an array at 16 kHz, or (samples, rate).
            text: Its transcript, which is not verified.
            language: Of the text; None: detected.

        Returns:
            Words as with word_timestamps: times in seconds, in order, without overlap. The joined
            words are the text with single spaces.

        Raises:
            UsageError: audio or text is too long, or empty.
            AudioError, NonFiniteError, DeviceError.
        """
        checked = OPTIONS.of(language=language)
        self._check_options(checked)
        words, source = normalize_text(text), open_source(audio)
        features = self._features(source)
        check_duration(features, source.name)
        return self._run_steps(
            align_text(features, words, checked.language, self._require_text_decoder())
        )

    def encode(self, audio: SourceLike) -> NDArray[np.float32]:
        """The encoder's output for the first window: float32 [n_audio_ctx, n_audio_state].

        oscine.probe gives the intermediate values.
        """
        features = self._features(open_source(audio))
        mel = features.window(0, features.frames)
        return self.engine.call(partial(WhisperRunner.encode_one, mel=mel))

    def _run_steps(self, steps: SequenceGenerator[T]) -> T:
        """Run the steps of a request on the engine and return their result."""
        return run(self.engine.submit, steps)

    def _features(self, recording: Recording) -> Windows:
        return recording_windows(recording, self.runner, self.engine.submit)

    def _require_text_decoder(self) -> TextDecoderInfo:
        """Tokenizer and sizes of the text decoder. Raises UsageError if the model has none."""
        if self.tokenizer is None or self._special_tokens is None:
            raise UsageError(f"{self.name} has no text decoder; only encode() can be used")
        return TextDecoderInfo(self.tokenizer, self._special_tokens, self.runner.config)

    def _check_options(self, options: DecodingOptions) -> None:
        """Raise UsageError for options that this model does not support."""
        info = self._require_text_decoder()
        special_tokens = info.special_tokens
        suppressed_tokens(options.suppress_tokens, info)
        if not special_tokens.multilingual:
            if options.task == "translate":
                raise self._english_only("cannot translate")
            if options.multilingual:
                raise self._english_only("cannot detect languages")
            if options.language not in (None, "en"):
                raise self._english_only(f"does not support language {options.language}")
        elif options.language is not None and options.language not in special_tokens.languages:
            raise UsageError(
                f"{self.name} does not support language {options.language}; it supports "
                f"{', '.join(special_tokens.languages)}"
            )

    def _english_only(self, problem: str) -> UsageError:
        return UsageError(
            f"{self.name} is English-only and {problem}; use a multilingual model, such as base"
        )
