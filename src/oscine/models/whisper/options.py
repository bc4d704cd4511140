"""The options of a transcription that Whisper supports."""

from __future__ import annotations

from oscine.options import WHISPER, SupportedOptions
from oscine.options.transcribe import TranscribeOptions

OPTIONS = SupportedOptions(TranscribeOptions, WHISPER)
