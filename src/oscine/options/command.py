"""Options of the commands only: which model on which device, and where results are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from oscine.options import WHISPER, Group, option
from oscine.options.checks import any_value, flag, number, one_of, optional

Dtype: TypeAlias = Literal["auto", "f32", "f16"]
Format: TypeAlias = Literal["txt", "vtt", "srt", "tsv", "lrc", "json", "all"]

_CALL_EACH_HINT = "call it for each recording"


def _model_option(default: str) -> Any:
    help = "A name of `oscine models list`, or a path."
    return option(
        None, any_value, help, Group.MODEL, metavar="MODEL", default_text=default,
        python_hint="give it to load")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Which model a command loads, and how."""

    # fmt: off
    model: str | None = _model_option("")
    device: str = option(
        "auto", any_value, "auto, cpu, gpu, gpu:N, all, or part of an adapter's name.",
        Group.MODEL, metavar="DEVICE", python_hint="choose the device when loading the model")
    dtype: Dtype = option(
        "auto", one_of("auto", "f32", "f16"), "Precision of the weights; auto: as stored.",
        Group.MODEL,
        python_hint="choose the precision when loading the model: dtype='f32' or 'f16'")
    threads: int | None = option(
        None, any_value, "Cores for NumPy; 0: all.", Group.MODEL,
        metavar="NUMBER", default_text="OSCINE_THREADS, else all",
        python_hint="set the environment variable OSCINE_THREADS, or call threads.set_count")
    offline: bool = option(
        False, flag, "Fetch nothing (also OSCINE_OFFLINE=1).", Group.MODEL, flags=("--offline",),
        python_hint="give it when loading the model")
    deterministic: bool = option(
        False, flag, "Same result under any load, bit for bit; slower.",
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
        None, flag, "openai-whisper's: --fp16 False is --dtype f32.", Group.MODEL,
        python_hint="choose the precision when loading the model: dtype='f32' or 'f16'")
    model_dir: str | None = option(
        None, any_value, "Refused: set OSCINE_HOME instead.", Group.MODEL,
        python_hint="set the environment variable OSCINE_HOME")
    output_format: list[Format] | None = option(
        None, any_value,
        "txt, vtt, srt, tsv, lrc, json or all; several as srt,vtt, which are written to files.",
        Group.OUTPUT, default_text="txt", flags=("--output-format", "-f"), metavar="FORMAT",
        python_hint="give the transcript to formats.render")
    output_dir: str | None = option(
        None, any_value, "Folder for the results, or the result file of a single recording, such "
        "as talk.srt.", Group.OUTPUT, metavar="PATH",
        default_text="stdout for one recording and one format, else beside the recordings",
        flags=("--output-dir", "-o"), unique=True,
        python_hint="write what formats.render gives")
    recursive: bool = option(
        False, flag, "Take the folders in folders too; results go to the same folders below "
        "--output-dir.",
        Group.OUTPUT, flags=("--recursive", "-r"), python_hint=_CALL_EACH_HINT)
    skip_existing: bool = option(
        False, flag, "Leave out recordings that have their results.", Group.OUTPUT,
        flags=("--skip-existing",), python_hint=_CALL_EACH_HINT)
    overwrite: bool = option(
        False, flag, "Replace also results that were edited since they were written.",
        Group.OUTPUT, flags=("--overwrite",), python_hint="write what formats.render gives")
    watch: str | None = option(
        None, any_value, "Transcribe what arrives in a folder, once it is whole, until Ctrl-C.",
        Group.OUTPUT, metavar="FOLDER", unique=True, python_hint=_CALL_EACH_HINT)
    verbose: bool = option(
        False, flag, "Log to stderr, and show segments there as they come.", Group.OUTPUT,
        python_hint="pass progress=, or iterate over stream() to see segments as they come",
        renamed_from={"log_progress": "pass progress="})
    live: bool = option(
        False, flag,
        "Write words as they are said, from the microphone, or from 16-bit samples at 16 kHz "
        "where FILE is -.",
        Group.LIVE, flags=("--live",), python_hint="use listen")
    latency: float | None = option(
        None, any_value, "Seconds of audio until a word is final.", Group.LIVE, default_text="2",
        python_hint="give it to listen")
    temperature_increment_on_fallback: float | None = option(
        0.2, optional(number()),
        "Added for each new attempt, up to temperature 1; None: one attempt.", Group.FALLBACK,
        families=(WHISPER,), python_hint="use temperature=(0, 0.2, 0.4, 0.6, 0.8, 1)")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakCommand(LoadOptions):
    """Options of `oscine speak` for loading, input and output; not of the speech itself."""

    # fmt: off
    model: str | None = _model_option("qwen3-tts-0.6b-custom-voice")
    output: str | None = option(
        None, any_value,
        "File for the speech (.wav .raw .mp3 .flac .opus .ogg .m4a .aac), or - for stdout.",
        Group.OUTPUT, metavar="FILE", default_text="stdout, if that is not a terminal",
        flags=("--output", "-o"), unique=True, python_hint="use Speech.save")
    format: str | None = option(
        None, any_value, "wav, raw, mp3 and so on.", Group.OUTPUT, metavar="FORMAT",
        default_text="the suffix of FILE; wav on stdout", flags=("--format", "-f"), unique=True,
        python_hint="give it to Speech.save")
    mark: bool = option(
        True, flag, "Say in the file's metadata that the speech is synthetic, and of which model.",
        Group.OUTPUT, python_hint="give it to Speech.save")
    play: bool = option(
        False, flag, "Play the speech while it is made.", Group.OUTPUT, flags=("--play",),
        python_hint="iterate over stream() and play its audio")
    lines: bool = option(
        False, flag, "Speak each line of the text to a file of its own: a.wav gives a-001.wav ...",
        Group.OUTPUT, flags=("--lines",), python_hint="call speak once for each text")
    word_times: str | None = option(
        None, any_value,
        "Also write when each word is spoken, found by aligning the speech with a Whisper model.",
        Group.OUTPUT, metavar="FILE.json|.srt|.vtt", unique=True,
        python_hint="give each of Speech.spoken with its samples to Whisper.align")
    aligner: str | None = option(
        None, any_value, "The Whisper model of --word-times.", Group.MODEL, metavar="MODEL",
        default_text="base", python_hint="load a Whisper model and call its align")
    plain: bool = option(
        False, flag, "The text is Markdown: speak its words, not its markup, links, emoji, code.",
        Group.LENGTH, flags=("--plain",), python_hint="give oscine.plain_text(text) as the text")
    verbose: bool = option(
        False, flag, "Report time to the first audio, speed and seed on stderr.", Group.OUTPUT,
        python_hint="look at stream().first_audio and at the seed of the speech")
    # fmt: on
