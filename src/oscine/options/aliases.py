"""Options of other programs: `oscine transcribe` accepts them as aliases, or prints a hint.

Sources: faster_whisper/transcribe.py; whisper-ctranslate2's commandline.py;
whisper.cpp's examples/cli/cli.cpp; WhisperX's whisperx/__main__.py; parakeet-mlx's cli.py. The
options themselves have openai-whisper's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SPEAKERS_HINT = "speakers are not told apart yet; split_channels tells channels apart"
_OUTPUT_NAME_HINT = "use output_dir: a folder, or the result file of one recording"
_CHUNK_LENGTH_HINT = (
    "long recordings are cut at pauses; vad_max_speech_duration_s splits longer speech"
)
_ATTENTION_HINT = "attention is computed as the device does it best; leave it out"
_CACHE_FOLDER_HINT = "set the environment variable OSCINE_HOME"
_DEVICE_HINT = "use device='gpu:N', or a part of the adapter's name"
_WORD_TIMES_HINT = "word_timestamps needs no other model: times come from the attention of this one"
_ONE_LINE_JSON_HINT = "json is in one line, which python -m json.tool FILE indents"
_NO_CHOICE_HINT = "there is nothing to choose; leave it out"

#: A name, or a name and its value -> the option that takes the value, or all arguments that replace
#: it: none if the default already does it, or if it names a recording.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        # whisper.cpp
        **{"-m": "--model", "-t": "--threads", "--file": ""},
        **{"-ng": "--device cpu", "--no-gpu": "--device cpu"},
        **{"-tr": "--task translate", "--translate": "--task translate"},
        **{"-otxt": "-f txt", "-ovtt": "-f vtt", "-osrt": "-f srt", "-olrc": "-f lrc"},
        **{"--output-txt": "-f txt", "--output-vtt": "-f vtt", "--output-srt": "-f srt"},
        **{"--output-lrc": "-f lrc", "-oj": "-f json", "--output-json": "-f json"},
        **{"-ojf": "-f json", "--output-json-full": "-f json"},
        **{"-nt": "--without-timestamps", "--no-timestamps": "--without-timestamps"},
        **{"-np": "", "--no-prints": "", "-pp": "", "--print-progress": ""},
        **{"-sow": "", "--split-on-word": "", "-sns": "", "--suppress-nst": ""},
        **{"-bo": "--best-of", "-bs": "--beam-size", "-tp": "--temperature"},
        "-tpi": "--temperature-increment-on-fallback",
        "--temperature-inc": "--temperature-increment-on-fallback",
        "-nf": "--temperature-increment-on-fallback None",
        "--no-fallback": "--temperature-increment-on-fallback None",
        **{"-lpt": "--logprob-threshold", "--logprob-thold": "--logprob-threshold"},
        **{"-nth": "--no-speech-threshold", "--no-speech-thold": "--no-speech-threshold"},
        "--prompt": "--initial-prompt",
        **{"--vad": "--vad-filter", "-vt": "--vad-threshold"},
        "-vspd": "--vad-min-speech-duration-ms",
        "-vsd": "--vad-min-silence-duration-ms",
        "-vmsd": "--vad-max-speech-duration-s",
        "-vp": "--vad-speech-pad-ms",
        # whisper-ctranslate2 and faster-whisper
        **{"--model-directory": "--model", "--local-files-only": "--offline"},
        **{"--batched": "--batch-size auto", "--batched true": "--batch-size auto"},
        **{"--batched false": "", "--print-colors false": "", "--pretty-json false": ""},
        **{"--live-transcribe": "--live", "--log-prob-threshold": "--logprob-threshold"},
        **{"--compute-type default": "", "--compute-type auto": ""},
        **{"--compute-type float16": "--dtype f16", "--compute-type float32": "--dtype f32"},
        **{"--cpu-threads": "--threads", "--device-index 0": ""},
        # WhisperX
        **{"--vad-onset": "--vad-threshold", "--vad-offset": "--vad-neg-threshold"},
        **{"--vad-method silero": "", "--model-cache-only": "--offline", "--no-align": ""},
        **{"--print-progress true": "", "--print-progress false": ""},
        # parakeet-mlx
        **{"-v": "--verbose", "--fp32": "--dtype f32", "--decoding greedy": ""},
    }
)


def _split_names(rows: Mapping[str, str]) -> dict[str, str]:
    return {name: answer for names, answer in rows.items() for name in names.split()}


#: Name of an option -> what to use instead.
HINTS: dict[str, str] = _split_names(
    {
        # whisper.cpp
        "--processors": "use batch_size, which decodes several windows at once",
        "-ot --offset-t -d --duration -on --offset-n": (
            "use clip_timestamps START,END, in seconds or H:MM:SS"
        ),
        "-mc --max-context": "use condition_on_previous_text, False for a context of 0",
        "-ml --max-len": (
            "use max_line_width, with word_timestamps and max_line_count=1: cues of one line"
        ),
        "-et --entropy-thold": "use compression_ratio_threshold, which finds repetition too",
        "-wt --word-thold -dtw --dtw": _WORD_TIMES_HINT,
        "-ac --audio-ctx": "a window has 30 s, as the model was trained; leave it out",
        "-debug --debug-mode --log-level": "use verbose=True",
        "-di --diarize -tdrz --tinydiarize --speaker-name --speaker-num": _SPEAKERS_HINT,
        "--min-speakers --max-speakers --diarize-model --speaker-embeddings": _SPEAKERS_HINT,
        "--hf-token": f"no model here needs a token; {_SPEAKERS_HINT}",
        "-of --output-file --output-template --output-name": _OUTPUT_NAME_HINT,
        "-ocsv --output-csv": "use output_format='tsv', which has the same columns",
        "-owts --output-words": "use highlight_words, which underlines words in srt and vtt",
        "-ps --print-special -ls --log-score": "output_format json has tokens and scores",
        "-pc --print-colors --print-confidence": (
            "output_format json has the probability of each word, with word_timestamps"
        ),
        "-dl --detect-language": "output_format json has it, as has detect_language in Python",
        "-dev --device-index": _DEVICE_HINT,
        "-fa --flash-attn -nfa --no-flash-attn": _ATTENTION_HINT,
        "-vm --vad-model": "the detector comes with oscine: vad_filter, which is on",
        "-vo --vad-samples-overlap": _NO_CHOICE_HINT,
        "--suppress-regex": "use suppress_tokens, ids with commas between",
        "--grammar --grammar-rule --grammar-penalty": "use hotwords; there are no grammars",
        # faster-whisper and whisper-ctranslate2
        "--compute-type": "use dtype='f16', dtype='f32' or, for int8, dtype='q8'",
        "--num-workers": "any number of threads may use one model; see batch_size",
        "--download-root --cache-directory --cache-dir": _CACHE_FOLDER_HINT,
        "--chunk-length --chunk-size --chunk-duration --overlap-duration": _CHUNK_LENGTH_HINT,
        "--prompt-reset-on-temperature": "it is 0.5, as upstream; leave it out",
        "--pretty-json": _ONE_LINE_JSON_HINT,
        "-p": f"batch_size decodes several windows at once; {_ONE_LINE_JSON_HINT}",
        "--live-volume-threshold": "speech is found by a network: use vad_threshold",
        "--live-input-device --live-input-device-sample-rate": (
            "live takes the system's microphone, or raw samples through -"
        ),
        # WhisperX
        "--align-model --interpolate-method": _WORD_TIMES_HINT,
        "--return-char-alignments": "words have times, characters none; use word_timestamps",
        "--vad-method": "the detector is Silero's, which comes with oscine; leave it out",
        "--suppress-numerals": "use suppress_tokens with the ids of the digits",
        "--segment-resolution": "segments are sentences or phrases; leave it out",
        # parakeet-mlx
        "--decoding": "decoding is greedy, beam search is for Whisper; leave it out",
        "--bf16": "use dtype='f16'",
        "--full-attention --local-attention --local-attention-context-size": _ATTENTION_HINT,
        "--version": "oscine --version prints it",
    }
)

#: Key of an object chunking_strategy of OpenAI's API -> the option that it sets.
OPENAI_VAD_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "threshold": "vad_threshold",
        "silence_duration_ms": "vad_min_silence_duration_ms",
        "prefix_padding_ms": "vad_speech_pad_ms",
    }
)

#: Name of a keyword argument of the Python API -> what to use instead.
PYTHON_HINTS: Mapping[str, str] = MappingProxyType(
    {
        name[2:].replace("-", "_"): answer
        for name, answer in {
            **HINTS,
            "--log-prob-threshold": "it is called logprob_threshold here",
            "--cpu-threads": "set the environment variable OSCINE_THREADS",
            "--local-files-only": "give offline when loading the model",
        }.items()
        if name.startswith("--")
    }
)


def resolve_alias(name: str, value: str | None) -> tuple[str, bool] | None:
    """The replacement of another program's option, and whether it consumes the value after it.

    `value`: the argument that follows. None if the name is not an alias.
    """
    key = name if not name.startswith("--") else name.replace("_", "-")
    if value is not None and (taken := ALIASES.get(f"{key} {value.lower()}")) is not None:
        return taken, True
    taken = ALIASES.get(key)
    return None if taken is None else (taken, False)
