"""The names of other programs' Python interfaces, on oscine's models: docs/compat.md.

from oscine.compat.faster_whisper import BatchedInferencePipeline, WhisperModel
from oscine.compat import whisper

A script for the other program runs with such a line in place of its import. What oscine does not
do is refused by name, never ignored.
"""
