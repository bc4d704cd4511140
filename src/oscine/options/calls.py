"""Which method of a model takes an option, for messages."""

from __future__ import annotations

from oscine.errors import UnknownArgumentError
from oscine.options import options_of
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions


def unknown_argument(name: str) -> UnknownArgumentError:
    """The error for an argument that `load` lacks, with the method that takes such an option."""
    takers = {
        "transcribe": options_of(TranscribeOptions),
        "speak": {**options_of(VoiceOptions), **options_of(SpeakOptions)},
    }
    methods = " and ".join(method for method, options in takers.items() if name in options)
    if methods:
        return UnknownArgumentError(f"load does not take {name}: give it to {methods}")
    return UnknownArgumentError(f"load has no argument {name}")
