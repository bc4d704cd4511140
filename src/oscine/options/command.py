"""Options of the commands only: which model on which device, and where results are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from oscine.options import WHISPER, Group, option
from oscine.options.checks import any_value, flag, number, one_of, optional

Dtype: TypeAlias = Literal["auto", "f32", "f16", "q8", "q4"]
Format: TypeAlias = Literal["txt", "vtt", "srt", "tsv", "lrc", "json", "all"]

_CALL_EACH_HINT = "call it for each recording"


def _model_option(default: str) -> Any:
    help = "A model name (see `oscine models list`), org/name on Hugging Face, or a path."
    return option(
        None, any_value, help, Group.MODEL, metavar="MODEL", default_text=default,
        python_hint="give it to load")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Which model a command loads, and how."""

    # fmt: off
    model: str | None = _model_option("")
    device: str = option(
        "auto", any_value, "auto, cpu, gpu, gpu:N, all, or part of an adapter name.",
        Group.MODEL, metavar="DEVICE", python_hint="choose the device when loading the model")
    dtype: Dtype = option(
        "auto", one_of("auto", "f32", "f16", "q8", "q4"),
        "Precision of the weights; q8, q4: 8 or 4 bits; auto: that of the checkpoint.",
        Group.MODEL,
        python_hint="choose the precision when loading the model, such as dtype='f16'")
    threads: int | None = option(
        None, any_value, "Number of CPU threads for NumPy; 0: all cores.", Group.MODEL,
        metavar="NUMBER", default_text="OSCINE_THREADS, else all",
        python_hint="set the environment variable OSCINE_THREADS, or call threads.set_count")
    offline: bool = option(
        False, flag,
        "Do not download anything (also OSCINE_OFFLINE=1).", Group.MODEL, flags=("--offline",),
        python_hint="give it when loading the model")
    deterministic: bool = option(
        False, flag, "Make results bit-identical under any load; slower.",
        Group.MODEL, flags=("--deterministic",), python_hint="give it when loading the model")
    memory: str | None = option(
        None, any_value, "Maximum device memory for the model: 4GB, 800MB, 1.5GiB, or 50% of the "
        "free memory.", Group.MODEL, metavar="SIZE", default_text="what the device has",
        python_hint="give it when loading the model")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscribeCommand(LoadOptions):
    """Options of `oscine transcribe` for loading, input and output; not of the transcription."""

    # fmt: off
    model: str | None = _model_option("base")
    fp16: bool | None = option(
        None, flag, "Accepted for openai-whisper: --fp16 False means --dtype f32.", Group.MODEL,
        python_hint="choose the precision when loading the model: dtype='f32' or 'f16'")
    model_dir: str | None = option(
        None, any_value, "Refused; set OSCINE_HOME instead.", Group.MODEL,
        python_hint="set the environment variable OSCINE_HOME")
    output_format: list[Format] | None = option(
        None, any_value,
        "txt, vtt, srt, tsv, lrc, json, all, or a list such as srt,vtt, which is written to files.",
        Group.OUTPUT, default_text="txt", flags=("--output-format", "-f"), metavar="FORMAT",
        python_hint="give the transcript to formats.render")
    output_dir: str | None = option(
        None, any_value, "Folder for the results, or the result file of a single recording, such "
        "as talk.srt.", Group.OUTPUT, metavar="PATH",
        default_text="stdout for one recording and one format, else beside the recordings",
        flags=("--output-dir", "-o"), unique=True,
        python_hint="write what formats.render gives")
    recursive: bool = option(
        False, flag, "Search folders recursively; --output-dir gets the same subfolders.",
        Group.OUTPUT, flags=("--recursive", "-r"), python_hint=_CALL_EACH_HINT)
    skip_existing: bool = option(
        False, flag, "Skip recordings whose results exist.", Group.OUTPUT,
        flags=("--skip-existing",), python_hint=_CALL_EACH_HINT)
    overwrite: bool = option(
        False, flag, "Overwrite results even if they were edited.",
        Group.OUTPUT, flags=("--overwrite",), python_hint="write what formats.render gives")
    watch: str | None = option(
        None, any_value,
        "Watch a folder, and transcribe new recordings once they are complete, until Ctrl-C.",
        Group.OUTPUT, metavar="FOLDER", unique=True, python_hint=_CALL_EACH_HINT)
    verbose: bool = option(
        False, flag, "Log to stderr, and print segments there as they are decoded.", Group.OUTPUT,
        python_hint="pass progress=, or iterate over stream() to see segments as they come",
        renamed_from={"log_progress": "pass progress="})
    live: bool = option(
        False, flag,
        "Transcribe live from the microphone, or from raw 16-bit mono samples at 16 kHz "
        "if FILE is -.",
        Group.LIVE, flags=("--live",), python_hint="use listen")
    latency: float | None = option(
        None, any_value,
        "Seconds of audio after which a word is final.", Group.LIVE, default_text="2",
        python_hint="give it to listen")
    temperature_increment_on_fallback: float | None = option(
        0.2, optional(number()),
        "Temperature increase for each retry, up to 1; None: no retries.", Group.FALLBACK,
        families=(WHISPER,), python_hint="use temperature=(0, 0.2, 0.4, 0.6, 0.8, 1)")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakCommand(LoadOptions):
    """Options of `oscine speak` for loading, input and output; not of the speech itself."""

    # fmt: off
    model: str | None = _model_option("qwen3-tts-0.6b-custom-voice")
    output: str | None = option(
        None, any_value,
        "Output file (.wav .raw .mp3 .flac .opus .ogg .m4a .aac), or - for stdout.",
        Group.OUTPUT, metavar="FILE", default_text="stdout, if that is not a terminal",
        flags=("--output", "-o"), unique=True, python_hint="use Speech.save")
    format: str | None = option(
        None, any_value,
        "Audio format: wav, raw, mp3, flac, opus, ogg, m4a or aac.", Group.OUTPUT, metavar="FORMAT",
        default_text="the suffix of FILE; wav on stdout", flags=("--format", "-f"), unique=True,
        python_hint="give it to Speech.save")
    mark: bool = option(
        True, flag, "State in the metadata that the speech is synthetic, and by which model.",
        Group.OUTPUT, python_hint="give it to Speech.save")
    play: bool = option(
        False, flag, "Play the speech as it is generated.", Group.OUTPUT, flags=("--play",),
        python_hint="iterate over stream() and play its audio")
    lines: bool = option(
        False, flag,
        "Write each line of the text to a separate file: a-001.wav, a-002.wav, ... for a.wav.",
        Group.OUTPUT, flags=("--lines",), python_hint="call speak once for each text")
    word_times: str | None = option(
        None, any_value,
        "Also write the time of each word, aligned by a Whisper model.",
        Group.OUTPUT, metavar="FILE.json|.srt|.vtt", unique=True,
        python_hint="give each of Speech.spoken with its samples to Whisper.align")
    aligner: str | None = option(
        None, any_value, "Whisper model for --word-times.", Group.MODEL, metavar="MODEL",
        default_text="base", python_hint="load a Whisper model and call its align")
    plain: bool = option(
        False, flag, "Read the text as Markdown, and skip markup, link targets, emoji and code.",
        Group.LENGTH, flags=("--plain",), python_hint="give oscine.plain_text(text) as the text")
    verbose: bool = option(
        False, flag,
        "Print the time to the first audio, the speed and the seed on stderr.", Group.OUTPUT,
        python_hint="look at stream().first_audio and at the seed of the speech")
    # fmt: on
