"""What is damaged: the goldens' checkpoints, a saved voice, and recordings made here by PyAV."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "goldens"

FOLDERS = (
    *("whisper_en", "whisper_multi", "whisper_formats/hf", "whisper_formats/hf_bf16_sharded"),
    *("whisper_formats/ct2_int8", "whisper_formats/ct2_float16", "whisper_formats/mlx_q3"),
    *("parakeet_ctc", "parakeet_rnnt", "parakeet_tdt", "parakeet_formats/hf"),
    *("parakeet_formats/mlx", "parakeet_formats/mlx_q8"),
    *("qwen3_tts/base/ckpt", "qwen3_tts/custom_voice/ckpt"),
)
FILES = (
    *("whisper_formats/openai.pt", "whisper_formats/ggml-f32.bin", "whisper_formats/ggml-q5_1.bin"),
    *("whisper_formats/ggml-q8_0.bin", "parakeet_formats/model.nemo"),
    "parakeet_formats/hybrid_gz.nemo",
)
TOKENIZER = GOLDENS / "whisper_formats" / "hf" / "tokenizer.json"
UPSTREAM_ONLY = ("golden.json", "golden.npz", "README.md")

#: Container, suffix, codec, channel layouts.
RECORDINGS = (
    ("wav", "wav", "pcm_s16le", ("mono", "stereo", "7.1")), ("wav", "wav", "pcm_alaw", ("mono",)),
    ("wav", "wav", "pcm_f32le", ("stereo",)), ("wav", "wav", "adpcm_ms", ("mono",)),
    ("aiff", "aiff", "pcm_s16be", ("stereo",)), ("caf", "caf", "pcm_s16be", ("mono",)),
    ("au", "au", "pcm_s16be", ("mono",)), ("w64", "w64", "pcm_s16le", ("mono",)),
    ("flac", "flac", "flac", ("mono", "5.1", "7.1")), ("mp3", "mp3", "libmp3lame", ("stereo",)),
    ("ogg", "ogg", "libopus", ("mono", "7.1")), ("ogg", "ogg", "flac", ("mono",)),
    ("adts", "aac", "aac", ("mono", "5.1", "7.1")), ("mp4", "m4a", "aac", ("stereo", "7.1")),
    ("mp4", "m4a", "alac", ("mono", "5.1")), ("mov", "mov", "pcm_s16le", ("stereo",)),
    ("matroska", "mkv", "libopus", ("mono", "7.1")), ("webm", "webm", "libopus", ("stereo",)),
    ("matroska", "mka", "flac", ("7.1",)), ("mpegts", "ts", "aac", ("mono", "5.1")),
    ("mpegts", "ts", "mp2", ("stereo",)), ("wv", "wv", "wavpack", ("mono", "7.1", "12 channels")),
    ("ac3", "ac3", "ac3", ("stereo", "5.1")), ("asf", "wma", "wmav2", ("stereo",)),
    ("tta", "tta", "tta", ("stereo",)), ("avi", "avi", "mp3", ("mono",)),
    ("amr", "amr", "libopencore_amrnb", ("mono",)), ("mp2", "mp2", "mp2", ("mono",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seed:
    """Something whole: files by name, of which `main` is given to oscine, or the folder itself."""

    name: str
    kind: str  # "model", "voice" or "recording"
    files: dict[str, bytes]
    main: str = ""


def checkpoints() -> list[Seed]:
    """Every format that is read, and a saved voice."""
    found = []
    for name in FOLDERS:
        folder = GOLDENS / name
        files = {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and file.name not in UPSTREAM_ONLY
        }
        if name in ("whisper_formats/hf_bf16_sharded", "whisper_formats/mlx_q3"):
            files["tokenizer.json"] = TOKENIZER.read_bytes()  # else nothing behind it is reached
        found.append(Seed(name, "model", files))
    for name in FILES:
        file = GOLDENS / name
        files = {file.name: file.read_bytes(), "tokenizer.json": TOKENIZER.read_bytes()}
        found.append(Seed(name, "model", files, file.name))
    return [*found, Seed("voice", "voice", {"voice.safetensors": voice()}, "voice.safetensors")]


def voice() -> bytes:
    """A saved voice as oscine writes it."""
    from oscine.models.qwen3_tts.voices import Voice, write_voice

    random = np.random.default_rng(0)
    speaker = random.standard_normal(48).astype(np.float32)
    codes = random.integers(0, 30, (9, 4)).astype(np.uint32)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "voice.safetensors"
        write_voice(path, Voice("voice", speaker, codes, "good day", "0b6"))
        return path.read_bytes()


def recordings() -> list[Seed]:
    """Half a second each, of every container and codec that this PyAV writes."""
    found = []
    for container, suffix, codec, layouts in RECORDINGS:
        for layout in layouts:
            content = recording(container, codec, layout)
            if content:
                name = f"{codec}_{layout.replace(' ', '_')}.{suffix}"
                found.append(Seed(name, "recording", {name: content}, name))
    return found


def recording(container: str, codec: str, layout: str) -> bytes:
    """A tone; nothing where this PyAV cannot write it."""
    import av

    av.logging.set_level(av.logging.PANIC)
    written = io.BytesIO()
    rate = 8000 if "amr" in codec else 48000
    try:
        with warnings.catch_warnings(), av.open(written, "w", format=container) as out:
            warnings.simplefilter("ignore")
            stream: Any = out.add_stream(codec, rate=rate)
            coder = stream.codec_context
            coder.layout, coder.format = layout, coder.codec.audio_formats[0]
            out.start_encoding()
            chain = av.AudioResampler(coder.format, layout, rate, coder.frame_size or 960)
            for frame in [*chain.resample(tone(layout, rate)), *chain.resample(None)]:
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
    except (av.error.FFmpegError, ValueError, IndexError, TypeError):
        return b""
    return written.getvalue()


def tone(layout: str, rate: int) -> Any:
    """Half a second in every channel, as one packed frame: PyAV miscounts the planes of others."""
    import av

    channels = av.AudioLayout(layout).nb_channels
    wave = 8000 * np.sin(2 * np.pi * 300 * np.arange(rate // 2) / rate)
    packed = np.repeat(wave.astype(np.int16), channels).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(packed, format="s16", layout=layout)
    frame.sample_rate, frame.pts = rate, 0
    return frame
