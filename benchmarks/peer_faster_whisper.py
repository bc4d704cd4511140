"""The peer: faster-whisper, float32, greedy, run by its own Python as a whole process.

    peer-python benchmarks/peer_faster_whisper.py MODEL_FOLDER LANGUAGE|auto FILE...

Prints one JSON line a file. The settings are those that oscine's side of a comparison uses too.
"""

from __future__ import annotations

import json
import os
import sys

from faster_whisper import WhisperModel


def main() -> None:
    folder, language, *files = sys.argv[1:]
    model = WhisperModel(folder, compute_type="float32", cpu_threads=os.cpu_count() or 1)
    for file in files:
        segments, info = model.transcribe(
            file,
            language=None if language == "auto" else language,
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=True,
            vad_filter=False,
        )
        text = "".join(segment.text for segment in segments).strip()
        row = {"file": file, "language": info.language, "text": text}
        print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
