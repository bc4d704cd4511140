"""The Python interfaces of faster-whisper and openai-whisper on oscine's models: docs/compat.md.

from oscine.compat.faster_whisper import BatchedInferencePipeline, WhisperModel
from oscine.compat import whisper

A script for the other program runs with such a line in place of its import. Unsupported options are
refused by name, never ignored.
"""
