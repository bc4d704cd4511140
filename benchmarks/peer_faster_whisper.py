"""The peer: faster-whisper at temperature 0, run by its own Python as a whole process.

    peer-python benchmarks/peer_faster_whisper.py MODEL_FOLDER LANGUAGE|auto OPTIONS FILE...

OPTIONS: a JSON object of further arguments of transcribe, and compute_type; float32, greedy and
without VAD unless it says otherwise. With batch_size it is the batched pipeline, which needs its
VAD. Prints one JSON line a file: text, language, words as [start, end, text], seconds it took, and
the process's peak memory in MB so far.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from faster_whisper import BatchedInferencePipeline, WhisperModel


def main() -> None:
    folder, language, options, *files = sys.argv[1:]
    settings = {"beam_size": 1, "temperature": 0.0, "vad_filter": False} | json.loads(options)
    kind = settings.pop("compute_type", "float32")
    model = WhisperModel(folder, compute_type=kind, cpu_threads=os.cpu_count() or 1)
    transcribe = model.transcribe
    if "batch_size" in settings:
        transcribe = BatchedInferencePipeline(model).transcribe
        settings |= {"vad_filter": True}
    for file in files:
        started = time.perf_counter()
        found, info = transcribe(
            file, language=None if language == "auto" else language, **settings
        )
        segments = list(found)
        row = {
            "file": file,
            "language": info.language,
            "text": "".join(segment.text for segment in segments).strip(),
            "words": [[w.start, w.end, w.word] for s in segments for w in s.words or ()],
            "seconds": round(time.perf_counter() - started, 2),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        }
        print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
