"""Make examples/spoken.wav: espeak-ng reads examples/spoken.txt; 16 kHz mono, 16 bit.

Run with espeak-ng on the path (Debian: apt-get install espeak-ng). The voice and speed are those
at which tiny.en and base write the sentence down exactly.
"""

from __future__ import annotations

import subprocess
import tempfile
import wave
from pathlib import Path

import av

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
VOICE, WORDS_PER_MINUTE = "en-us", 150


def main() -> None:
    text = (EXAMPLES / "spoken.txt").read_text("utf-8").strip()
    with tempfile.TemporaryDirectory() as folder:
        spoken = f"{folder}/spoken.wav"
        speed = str(WORDS_PER_MINUTE)
        subprocess.run(["espeak-ng", "-v", VOICE, "-s", speed, "-w", spoken, text], check=True)
        resampler = av.AudioResampler(format="s16", layout="mono", rate=16000)
        with av.open(spoken) as source:
            frames = [*source.decode(audio=0), None]  # None flushes the resampler
            samples = b"".join(
                block.to_ndarray().tobytes()
                for frame in frames
                for block in resampler.resample(frame)
            )
    with wave.open(str(EXAMPLES / "spoken.wav"), "wb") as target:
        target.setparams((1, 2, 16000, 0, "NONE", "not compressed"))
        target.writeframes(samples)


if __name__ == "__main__":
    main()
