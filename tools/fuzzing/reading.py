"""A process that tries to read what it is told to, one line of JSON each; see processes.py.

    python -m fuzzing.reading MEMORY       (in tools/)

A line names a kind and a path. The answer has `outcome`: "read"; "refused", with the message that
an OscineError has; "contained", where that tells of a decoder in a process of its own that broke
down; or "finding", with the trace of any other error. A crash answers nothing.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import re
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

BROKEN = re.compile("its decoder (crashed|hangs|needs more memory|reads without an end)")
#: A mistake of ours that is told as if it were one of the file.
MISTAKE = re.compile(r"\((Key|Type|Index|Name|Attribute|Assertion|Overflow|ZeroDivision)Error\b")
MOST_MESSAGE = 2000  # characters of one line: longer, somebody's file is printed
SOUND = (0.1 * np.sin(0.05 * np.arange(8000))).astype(np.float32)
REFERENCE = np.tile(SOUND, 6)  # two seconds
WHISPER = {"temperature": 0.0, "sample_len": 6}


def read(kind: str, path: Path) -> None:
    """All that oscine makes of it."""
    if kind == "recording":
        recording(path)
    elif kind == "voice":
        from oscine.models.qwen3_tts.voices import VoiceFolder

        VoiceFolder(path.parent).load(path)
    elif kind == "model":
        model(path)
    else:  # what the harness itself must notice: tests/test_fuzz.py
        from fuzzing import faults

        getattr(faults, kind)()


def model(path: Path) -> None:
    """Load it, and have it do a little."""
    import oscine

    loaded: Any = oscine.load(path, "cpu", offline=True)
    if hasattr(loaded, "speak"):
        voice = next(iter(loaded.voices), None)
        heard = {"voice": voice} if voice else {"reference": (REFERENCE, 24_000)}
        loaded.speak("Good day.", **heard, max_frames=2, seed=1)
    else:
        more = WHISPER if type(loaded).__name__ == "Whisper" else {}
        loaded.transcribe(SOUND, vad_filter=False, **more)


def recording(path: Path) -> None:
    """From its path and from bytes, mixed and channel by channel."""
    from oscine.audio.io import channel_count, open_source

    count = sum(len(block) for block in open_source(path).blocks())
    again = sum(len(block) for block in open_source(path.read_bytes()).blocks())
    if count != again:
        raise AssertionError(f"{count} samples of a path, {again} of its bytes")
    for channel in range(1, min(channel_count(path), 3) + 1):
        for _ in open_source(path, channel).blocks():
            pass


def answer(kind: str, path: Path) -> dict[str, str]:
    """What came of it."""
    from oscine.errors import OscineError

    try:
        read(kind, path)
    except OscineError as error:
        message = str(error)
        if "\n" in message or len(message) > MOST_MESSAGE:
            return {"outcome": "finding", "what": f"a message of many lines: {message[:3000]!r}"}
        if MISTAKE.search(message):
            return {"outcome": "finding", "what": f"a mistake of ours: {message}"}
        return {"outcome": "contained" if BROKEN.search(message) else "refused", "what": message}
    except BaseException as error:
        trace = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in trace if "/oscine/" in frame.filename]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
        what = f"{type(error).__name__} in {where}: {str(error)[:300]}"
        return {
            "outcome": "finding",
            "what": what,
            "trace": "".join(traceback.format_exc()[-4000:]),
        }
    return {"outcome": "read", "what": ""}


def main() -> None:
    faulthandler.enable()
    most = int(sys.argv[1]) << 20
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    answers, sys.stdout = sys.stdout, sys.stderr
    import av

    av.logging.set_level(av.logging.PANIC)
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for line in sys.stdin:
        asked = json.loads(line)
        told = answer(asked["kind"], Path(asked["path"]))
        told["mebibytes"] = str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
