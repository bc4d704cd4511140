"""The public model: a recording in; text, language or the encoder's output out."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.audio.io import SourceLike, open_source
from oscine.audio.windows import Features
from oscine.errors import UsageError
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.decode import Check, Decoded, Request
from oscine.models.whisper.options import TranscribeOptions
from oscine.models.whisper.stream import Cancel, Progress, Stream
from oscine.models.whisper.tokens import Tokens, resolve, suppressed
from oscine.text.whisper import Tokenizer
from oscine.types import Transcript


class Engine(Protocol):
    """What the pipeline needs of models.whisper.decode.Decoder."""

    config: WhisperConfig
    device: str
    timings: dict[str, float]

    def encode(self, mel: NDArray[np.float32]) -> None: ...
    def encode_audio(
        self, mel: NDArray[np.float32], layers: int | None = None
    ) -> NDArray[np.float32]: ...
    def decode(self, request: Request, check: Check | None = None) -> tuple[Decoded, ...]: ...
    def detect(self, request: Request, ids: Sequence[int]) -> tuple[int, NDArray[np.float32]]: ...
    def trace(self) -> dict[str, tuple[int, float]]: ...


class Whisper:
    """A loaded model. One device works on one window at a time; streams may be interleaved."""

    def __init__(self, decoder: Engine, tokenizer: Tokenizer | None, name: str) -> None:
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.name = name
        self.tokens: Tokens | None = resolve(tokenizer, decoder.config) if tokenizer else None
        self.lock = RLock()
        self._encoded: object = None  # which window the device holds

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.decoder.device

    @property
    def multilingual(self) -> bool:
        """Whether it knows languages other than English."""
        return self.tokens is not None and self.tokens.multilingual

    def transcribe(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcript:
        """The whole recording as text.

        `audio`: a path, "-", bytes, a binary file, an array at 16 kHz, (array, rate).
        `options`: fields of TranscribeOptions, in openai-whisper's forms.
        `progress(done, total)` gets seconds, never falling. `cancel` is asked between the bursts of
        a window; when it says so, Cancelled is raised, whose `partial` is what was finished.
        Raises UsageError, AudioError, NonFiniteError, DeviceError, Cancelled.
        """
        stream = self.stream(audio, progress=progress, cancel=cancel, **options)
        for _ in stream:
            pass
        return stream.transcript()

    def stream(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Stream:
        """Segments as windows are finished; to cancel, stop iterating. Otherwise as transcribe."""
        checked = TranscribeOptions.of(**options)
        return Stream(self, open_source(audio), checked, progress, cancel)

    def detect_language(self, audio: SourceLike) -> tuple[str, dict[str, float]]:
        """The code of the language of the first window, and the probability of each code.

        Raises UsageError if the model knows only English.
        """
        features = self._features(audio)
        with self.lock:
            return self.language_of(features, 0, features.frames, key=object())

    def encode(self, audio: SourceLike, layers: int | None = None) -> NDArray[np.float32]:
        """The encoder's output for the first window: [n_audio_ctx, n_audio_state].

        `layers`: how many blocks to run, without the final norm; None for all and the norm.
        """
        features = self._features(audio)
        with self.lock:
            self._encoded = None
            return self.decoder.encode_audio(features.window(0, features.frames), layers)

    def _features(self, audio: SourceLike) -> Features:
        config = self.decoder.config
        return Features(open_source(audio), config.n_mels, config.window_frames)

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

    def hold(self, features: Features, seek: int, size: int, key: object) -> None:
        """Have the device hold the window at `seek`, encoding it unless it does; lock held."""
        if self._encoded != (key, seek, size):
            self._encoded = None
            self.decoder.encode(features.window(seek, size))
            self._encoded = (key, seek, size)

    def language_of(
        self, features: Features, seek: int, size: int, key: object
    ) -> tuple[str, dict[str, float]]:
        """Detect the language of one window; lock held."""
        _, tokens = self.text_side()
        if not tokens.multilingual:
            raise self._english_only("cannot detect languages")
        config = self.decoder.config
        self.hold(features, seek, min(size, config.window_frames), key)
        ids = set(tokens.languages.values())
        request = Request(
            prompt=(tokens.start,),
            sot=0,
            suppress=tuple(id for id in range(config.n_vocab) if id not in ids),
            suppress_first=(),
            end=tokens.end,
            timestamp_begin=tokens.timestamp_begin,
            no_timestamps=tokens.no_timestamps,
            no_speech=tokens.no_speech,
            timestamps=False,
            max_initial_timestamp=None,
            limit=1,
        )
        picked, shares = self.decoder.detect(request, list(tokens.languages.values()))
        code = next(code for code, id in tokens.languages.items() if id == picked)
        return code, dict(zip(tokens.languages, map(float, shares), strict=True))
