"""The public model: a recording in; text, language or the encoder's output out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.audio.io import SourceLike, open_source
from oscine.audio.speech import survey
from oscine.audio.vad import VadOptions
from oscine.audio.windows import Features, Recording
from oscine.errors import DeviceMemoryError, UsageError
from oscine.models import agreement, resident
from oscine.models.cancel import Cancel, asked_to_stop
from oscine.models.listening import Stepwise
from oscine.models.transcription import Progress, Transcriber, vad_options
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.decode import Check
from oscine.models.whisper.language import vote, window_starts
from oscine.models.whisper.options import TranscribeOptions
from oscine.models.whisper.request import Alignment, Decoded, Request
from oscine.models.whisper.stream import Stream
from oscine.models.whisper.tokens import Tokens, resolve, suppressed
from oscine.text.whisper import Tokenizer
from oscine.types import Update

log = logging.getLogger(__name__)


class Engine(resident.Engine, Protocol):
    """What the pipeline needs of models.whisper.decode.Decoder."""

    config: WhisperConfig

    def reserve(self, windows: int, lines: int) -> None: ...
    def batch_that_fits(self) -> int: ...
    def encode(self, mels: Sequence[NDArray[np.float32]]) -> None: ...
    def encode_audio(
        self, mel: NDArray[np.float32], layers: int | None = None
    ) -> NDArray[np.float32]: ...
    def decode(
        self, requests: Sequence[Request], check: Check | None = None
    ) -> tuple[tuple[Decoded, ...], ...]: ...
    def align(self, prompt: Sequence[int], end: int, frames: int, window: int = 0) -> Alignment: ...
    def detect(self, request: Request, ids: Sequence[int]) -> tuple[int, NDArray[np.float32]]: ...


class Whisper(Transcriber[Engine]):
    """A loaded model."""

    def __init__(
        self,
        decoder: Engine,
        tokenizer: Tokenizer | None,
        name: str,
        rebuild: Callable[[], Engine] | None = None,
    ) -> None:
        super().__init__(decoder, name, rebuild)
        self.tokenizer = tokenizer
        self.tokens: Tokens | None = resolve(tokenizer, decoder.config) if tokenizer else None
        self._encoded: object = None  # which windows the device holds

    @property
    def multilingual(self) -> bool:
        """Whether it knows languages other than English."""
        return self.tokens is not None and self.tokens.multilingual

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
        checked = TranscribeOptions.of(**options)
        return Stream(self, open_source(audio), checked, progress, cancel)

    def listen(
        self,
        pieces: Iterable[Any],
        *,
        latency: float = agreement.LATENCY,
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
        checked = TranscribeOptions.of(**options, word_timestamps=True)
        self.check(checked)
        for name in ("clip_timestamps", "split_channels", "without_timestamps", "multilingual"):
            if name in options:
                raise UsageError(f"{name} does not go with listening; leave it out")
        if vad_options(checked) is None:
            options["vad_filter"] = False  # where that is not our choice, it is told once
        cancelled = asked_to_stop(cancel)
        return agreement.listen(Stepwise(self), pieces, latency, cancelled, options)

    def detect_language(
        self, audio: SourceLike, segments: int = 4, threshold: float | None = 0.5
    ) -> tuple[str, dict[str, float]]:
        """The code of the language that is spoken, and the probability of each code.

        Listens to speech alone, and to no more than `segments` windows: one whose language has a
        probability above `threshold` settles it, else they vote. Raises UsageError if the model
        knows only English.
        """
        speech = survey(open_source(audio), vad=VadOptions())
        features = self._features(speech.recording)
        starts = window_starts([(0, features.frames)], features.window_frames, segments)
        return vote(
            (self.language_of(features, seek, features.frames - seek) for seek in starts), threshold
        )

    def encode(self, audio: SourceLike, layers: int | None = None) -> NDArray[np.float32]:
        """The encoder's output for the first window: [n_audio_ctx, n_audio_state].

        `layers`: how many blocks to run, without the final norm; None for all and the norm.
        """
        features = self._features(open_source(audio))
        with self.lock:
            self._encoded = None
            return self.decoder.encode_audio(features.window(0, features.frames), layers)

    def _features(self, recording: Recording) -> Features:
        config = self.decoder.config
        return Features(recording, config.n_mels, config.window_frames)

    def text_side(self) -> tuple[Tokenizer, Tokens]:
        """Tokenizer and special ids; UsageError if the checkpoint is an encoder alone."""
        if self.tokenizer is None or self.tokens is None:
            raise UsageError(f"{self.name} has no text decoder; only encode() can be used")
        return self.tokenizer, self.tokens

    def check(self, options: TranscribeOptions) -> None:
        """Refuse what this model cannot do."""
        tokenizer, tokens = self.text_side()
        suppressed(options.suppress_tokens, tokenizer, tokens, self.decoder.config)
        if not tokens.multilingual:
            if options.task == "translate":
                raise self._english_only("cannot translate")
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

    def forget(self) -> None:
        self._encoded = None

    def reserve(self, wanted: int | str | None, width: int) -> int:
        """Room for a batch of windows with `width` lines each; how many there is room for.

        `wanted` may be "auto". Where the device has not enough for a number, less is made do with
        and said so. Raises DeviceMemoryError if not even one window fits.
        """
        most = self.decoder.batch_that_fits() if wanted == "auto" else int(wanted or 1)
        count = most
        while True:
            try:
                with self.lock:
                    self._encoded = None
                    self.decoder.reserve(count, count * width)
            except DeviceMemoryError as problem:
                if count == 1:
                    raise
                count //= 2
                log.warning("%s; going on with batches of %d", problem, count)
            else:
                return count

    def hold(
        self,
        features: Features,
        windows: Sequence[tuple[int, int]],
        key: object,
        *,
        silence: bool = False,
    ) -> None:
        """Have the device hold windows of (seek, size), encoding them unless it does; lock held.

        `silence`: after a window that ends before the recording does, the model hears silence.
        """
        wanted = (key, silence, tuple(windows))
        if self._encoded != wanted:
            self._encoded = None
            self.decoder.encode(
                [features.window(seek, size, silence=silence) for seek, size in windows]
            )
            self._encoded = wanted

    def language_of(
        self, features: Features, seek: int, size: int, key: object = None
    ) -> dict[str, float]:
        """The probability of each language in one window; `key` is that of `hold`."""
        with self.lock:
            window = (seek, min(size, features.window_frames))
            self.hold(features, [window], object() if key is None else key)
            return self.language_in(0)

    def language_in(self, window: int) -> dict[str, float]:
        """The probability of each language in a window that the device holds; lock held."""
        _, tokens = self.text_side()
        if not tokens.multilingual:
            raise self._english_only("cannot detect languages")
        ids = set(tokens.languages.values())
        request = Request(
            prompt=(tokens.start,),
            sot=0,
            suppress=tuple(id for id in range(self.decoder.config.n_vocab) if id not in ids),
            suppress_first=(),
            end=tokens.end,
            timestamp_begin=tokens.timestamp_begin,
            no_timestamps=tokens.no_timestamps,
            no_speech=tokens.no_speech,
            timestamps=False,
            max_initial_timestamp=None,
            limit=1,
            window=window,
        )
        _, shares = self.decoder.detect(request, list(tokens.languages.values()))
        return dict(zip(tokens.languages, map(float, shares), strict=True))
