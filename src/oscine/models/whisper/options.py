"""Options of a transcription as Whisper takes them."""

from __future__ import annotations

from oscine.options import WHISPER, SupportedOptions
from oscine.options.transcribe import TranscribeOptions

OPTIONS = SupportedOptions(TranscribeOptions, WHISPER)
