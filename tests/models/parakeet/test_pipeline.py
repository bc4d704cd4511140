"""From a recording to a transcript, with upstream's weights, texts and times."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import backends
from oscine.audio.io import decode as decode_audio
from oscine.engine.sequence import EncoderInput
from oscine.errors import Cancelled, DeviceError, DeviceLostError, UsageError
from oscine.loading import RunnerFactory
from oscine.models.parakeet.long_form import ChunkConfig
from oscine.models.parakeet.network import NETWORK
from oscine.models.parakeet.pipeline import Parakeet, is_multilingual
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.weights import load_weights
from oscine.models.parakeet.words import Token, group_words
from oscine.ops.reference import Reference
from oscine.text.sentencepiece import SentencePieceTokenizer
from oscine.types import Word

from .conftest import TOKENIZER, Hearing, Scripted

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (ROOT / "tests" / "goldens", ROOT.parent / "shared" / "oracles" / "asr-seed0")
CASES = [
    pytest.param(folder / case, id=f"{folder.name}-{case}")
    for folder in FOLDERS
    for case in ("parakeet_tdt", "parakeet_rnnt", "parakeet_ctc")
    if (folder / case).is_dir()
]
#: Their encoders are the same size but for heads, of which kernels take multiples of four.
ON_A_GPU = [FOLDERS[0] / "parakeet_rnnt", FOLDERS[0] / "parakeet_ctc"]
SPOKEN = ROOT / "examples" / "spoken.wav"


def facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "golden.json").read_text("utf-8"))
    return found


def recording(folder: Path, more: str = "") -> Path:
    return folder.parent / "audio" / f"{folder.name}{more}.wav"


def check_golden(folder: Path, device: str) -> None:
    model = oscine.load(folder, device=device)
    assert isinstance(model, Parakeet)
    result = model.transcribe(recording(folder), vad_filter=False, word_timestamps=True)
    golden = facts(folder)
    assert result.text == golden.get("hf_text", golden["text_from_pieces"])
    ids = [id for segment in result.segments for id in segment.tokens]
    assert model.tokenizer.decode(ids) == result.text
    if "hf_timestamps" not in golden:
        return
    rows = golden["hf_timestamps"]
    assert len(rows) == len(ids)
    # Upstream counts 80 ms a frame whatever the model; its last label may end after the recording.
    frame, limit = 12.5 * model.runner.config.subsampling_factor, golden["mel_frames"]
    labels = [
        Token(id, round(frame * row["start"]), min(round(frame * row["end"]), limit), 1.0)
        for id, row in zip(ids, rows, strict=True)
    ]
    words = [word for segment in result.segments for word in segment.words or ()]
    expected = [(w[0].start, w[-1].end) for w in group_words(labels, model.tokenizer)]
    assert [(round(100 * w.start), round(100 * w.end)) for w in words] == expected
    check_times(words, result.duration)


def check_times(words: list[Word], duration: float) -> None:
    for edges in ([word.start for word in words], [word.end for word in words]):
        assert edges == sorted(edges)
    assert all(0 <= word.start <= word.end <= duration for word in words)
    assert all(0 < word.probability <= 1 for word in words)


@pytest.mark.parametrize("folder", CASES)
def test_texts_and_times_are_upstreams(folder: Path) -> None:
    check_golden(folder, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("folder", ON_A_GPU, ids=lambda folder: folder.name)
def test_texts_and_times_on_a_gpu(folder: Path) -> None:
    check_golden(folder, "gpu")


@pytest.fixture(scope="module")
def tdt() -> Parakeet:
    model = oscine.load(FOLDERS[0] / "parakeet_tdt", device="cpu")
    assert isinstance(model, Parakeet)
    return model


@pytest.mark.parametrize("name", ["model.nemo", "hybrid_gz.nemo", "mlx", "hf"])
def test_every_format_is_loaded_as_a_parakeet(name: str) -> None:
    folder = FOLDERS[0] / "parakeet_formats"
    model, same = (oscine.load(folder / each, device="cpu") for each in (name, "hf"))
    assert isinstance(model, Parakeet)
    assert model.name == Path(name).stem
    assert model.device == "NumPy"
    audio = recording(FOLDERS[0] / "parakeet_tdt")
    texts = [each.transcribe(audio, vad_filter=False).text for each in (model, same)]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_matrices_are_held_as_asked_for(tdt: Parakeet, dtype: str) -> None:
    changed = load_weights(FOLDERS[0] / "parakeet_tdt", dtype)
    kind = np.dtype(np.float16 if dtype == "f16" else np.float32)
    block = changed.encoder.blocks[0]
    assert changed.transducer is not None
    for matrix in (
        changed.encoder.subsampling_linear.weight,
        changed.encoder.subsampling_layers[0].pointwise.weight, block.self_attn.linear_qkv.weight,
        block.conv.pointwise_conv1.weight, block.feed_forward1.linear1.weight,
        changed.transducer.embedding, changed.transducer.lstm[0].hidden.weight,
        changed.transducer.joint_out.weight,
    ):  # fmt: skip
        assert matrix.dtype == kind
    for array in (
        changed.encoder.subsampling_first_conv.weight,
        changed.encoder.subsampling_layers[0].depthwise.weight, block.conv.depthwise_conv.weight,
        block.self_attn.pos_bias_u,
    ):  # fmt: skip
        assert array.dtype == np.float32
    runner = ParakeetRunner(changed, Reference())
    mel = EncoderInput(np.zeros((80, runner.config.n_mels), np.float32))
    assert runner.encoded(mel).shape == (10, runner.config.d_model)


@pytest.mark.parametrize("samples", [1, 159, 160, 161, 1_000, 8_000, 15_999, 16_000])
@pytest.mark.parametrize("vad", [False, True])
def test_short_clips(tdt: Parakeet, samples: int, vad: bool) -> None:
    noise = np.random.default_rng(samples).standard_normal(samples).astype(np.float32) * 0.1
    result = tdt.transcribe(noise, vad_filter=vad, word_timestamps=True)
    assert result.duration == samples / 16_000
    check_times([w for s in result.segments for w in s.words or ()], result.duration)
    if samples < 160:
        assert result.text == ""


def test_silence_and_noise_have_no_text(tdt: Parakeet, caplog: pytest.LogCaptureFixture) -> None:
    noise = np.random.default_rng(0).standard_normal(64_000).astype(np.float32) * 0.01
    for samples in (np.zeros(64_000, np.float32), noise):
        with caplog.at_level(logging.WARNING):
            result = tdt.transcribe(samples)
        assert (result.text, result.segments) == ("", ())
        assert result.coverage is not None
        assert result.coverage.speech == 0
        assert "no speech detected" in caplog.text
        caplog.clear()


def test_speech_has_its_times_in_the_recording(tdt: Parakeet) -> None:
    """What is before and after speech is cut out; words lie where they are said."""
    spoken = decode_audio(SPOKEN).samples
    pause = np.zeros(80_000, np.float32)
    samples = np.concatenate([pause, spoken, pause, pause, spoken])
    result = tdt.transcribe(samples, word_timestamps=True)
    words = [word for segment in result.segments for word in segment.words or ()]
    assert words
    check_times(words, result.duration)
    assert words[0].start >= 4.5
    silent = 5 + len(spoken) / 16_000 + 0.5, 5 + len(spoken) / 16_000 + 9.5
    assert not [w for w in words if silent[0] < w.start < silent[1]]
    assert [segment.id for segment in result.segments] == list(range(len(result.segments)))
    written = result.to_dict()["coverage"]
    assert set(written) == {"speech", "without_text", "heard_again"}


def test_clips_and_channels(tdt: Parakeet) -> None:
    one = decode_audio(recording(FOLDERS[0] / "parakeet_tdt")).samples
    whole = tdt.transcribe(one, vad_filter=False, word_timestamps=True)
    part = tdt.transcribe(one, vad_filter=False, word_timestamps=True, clip_timestamps="0,2")
    words = [word for segment in part.segments for word in segment.words or ()]
    assert words
    assert 1 < words[-1].end <= 2
    assert part.duration == whole.duration
    stereo = np.stack([one, np.zeros_like(one)], axis=1)
    both = tdt.transcribe((stereo, 16_000), vad_filter=False, split_channels=True)
    assert {segment.channel for segment in both.segments} <= {1, 2}
    first = [segment.text for segment in both.segments if segment.channel == 1]
    assert "".join(first) == whole.text


def test_hotwords_change_what_is_heard(tdt: Parakeet, caplog: pytest.LogCaptureFixture) -> None:
    audio = recording(FOLDERS[0] / "parakeet_tdt")
    plain = tdt.transcribe(audio, vad_filter=False).text
    labels = [name[1:] for name in tdt.tokenizer.pieces if name.startswith("\u2581") and name[1:]]
    word = next(label for label in labels if label not in plain)
    boosted = tdt.transcribe(audio, vad_filter=False, hotwords=f"{word}:30").text
    assert word in boosted.split()
    assert tdt.transcribe(audio, vad_filter=False, hotwords="\u4e16").text == plain
    assert "hotword '\u4e16' is ignored" in caplog.text
    ctc = oscine.load(FOLDERS[0] / "parakeet_ctc", device="cpu")
    with pytest.raises(UsageError, match="CTC head, which does not support hotwords"):
        ctc.transcribe(audio, hotwords="so")


def test_languages() -> None:
    english = Parakeet(Scripted(Hearing([])), TOKENIZER, "parakeet-english")
    assert not english.multilingual
    frames = np.zeros(16_000, np.float32)
    assert english.transcribe(frames, language="en", vad_filter=False).language == "en"
    with pytest.raises(UsageError, match="English-only and does not support language de"):
        english.transcribe(frames, language="de")
    tokenizer = SentencePieceTokenizer.from_pieces(
        [*TOKENIZER.pieces[:50], "\u2581gr\u00fc\u00df", "\u0434\u0430"]
    )
    assert is_multilingual(tokenizer)
    several = Parakeet(Scripted(Hearing([])), tokenizer, "parakeet-v3")
    assert several.transcribe(frames, vad_filter=False).language == ""
    with pytest.raises(UsageError, match="parakeet-v3 detects the language itself"):
        several.transcribe(frames, language="en")


@pytest.mark.parametrize(
    ("case", "seconds", "chunk_config"),
    [
        ("parakeet_ctc", 300, ChunkConfig(3_000, 3_000, 1_000)),
        ("parakeet_rnnt", 24, ChunkConfig(1_000, 1_000, 500)),  # it says a hundred words a second
    ],
)
def test_five_minutes_in_pieces_are_what_they_are_in_one(
    case: str, seconds: int, chunk_config: ChunkConfig
) -> None:
    """Attention sees five frames to each side, so all that a frame hangs on lies in an overlap."""
    model = oscine.load(FOLDERS[0] / case, device="cpu")
    assert isinstance(model, Parakeet)
    model.runner.config = replace(model.runner.config, attention_window=(5, 5))
    rng = np.random.default_rng(0)
    parts = []
    for folder in ON_A_GPU:
        for more in ("", "_2"):
            samples = decode_audio(recording(folder, more)).samples
            parts += [samples[rng.integers(8_000) :] * gain for gain in rng.uniform(0.2, 1, 30)]
    rng.shuffle(parts)  # type: ignore[arg-type]
    samples = np.concatenate(parts)[: seconds * 16_000]
    texts = []
    for model._chunk_config in (ChunkConfig(max_single_frames=60_000), chunk_config):
        result = model.transcribe(samples, vad_filter=False, word_timestamps=True)
        texts.append([word for segment in result.segments for word in segment.words or ()])
    whole, pieces = texts
    assert len(whole) > 200
    assert [(w.word, w.start, w.end) for w in pieces] == [(w.word, w.start, w.end) for w in whole]
    np.testing.assert_allclose(
        [w.probability for w in pieces], [w.probability for w in whole], atol=0.02
    )


def test_encode(tdt: Parakeet) -> None:
    folder = FOLDERS[0] / "parakeet_tdt"
    with np.load(folder / "golden.npz") as arrays:
        expected = arrays["enc_out"]
    np.testing.assert_allclose(tdt.encode(recording(folder)), expected, atol=1e-3)


class Losing(ParakeetRunner):
    """Loses its device at the second pass of the encoder."""

    passes = 0

    def encode(self, inputs: Any, encoder_slots: Any) -> None:
        self.passes += 1
        if self.passes > 1:
            raise DeviceLostError("a device", "for a test")
        super().encode(inputs, encoder_slots)


def test_a_lost_device_is_replaced(tdt: Parakeet) -> None:
    weights, chunk_config = load_weights(FOLDERS[0] / "parakeet_tdt"), ChunkConfig(400, 400, 100)
    one = decode_audio(recording(FOLDERS[0] / "parakeet_tdt")).samples
    samples = np.tile(one, 3)
    made: list[ParakeetRunner] = []

    def rebuild() -> ParakeetRunner:
        made.append(ParakeetRunner(weights, Reference()))
        return made[-1]

    expected = Parakeet(tdt.runner, tdt.tokenizer, "tdt", chunk_config=chunk_config)
    losing = Parakeet(Losing(weights, Reference()), tdt.tokenizer, "tdt", rebuild, chunk_config)
    for batch in (None, 3):
        result = losing.transcribe(samples, vad_filter=False, batch_size=batch)
        assert result.text == expected.transcribe(samples, vad_filter=False, batch_size=batch).text
    assert len(made) == 1 and losing.runner is made[0]
    alone = Parakeet(Losing(weights, Reference()), tdt.tokenizer, "tdt", chunk_config=chunk_config)
    with pytest.raises(DeviceLostError):
        alone.transcribe(samples, vad_filter=False)


def test_cancelled_with_what_was_finished(tdt: Parakeet) -> None:
    one = decode_audio(recording(FOLDERS[0] / "parakeet_tdt")).samples
    model = Parakeet(tdt.runner, tdt.tokenizer, "tdt", chunk_config=ChunkConfig(400, 400, 100))
    told: list[float] = []
    stream = model.stream(
        np.tile(one, 8), vad_filter=False, max_words=3, cancel=lambda: len(told) > 3,
        progress=lambda done, total: told.append(done / total),
    )  # fmt: skip
    with pytest.raises(Cancelled) as stop:
        for _ in stream:
            pass
    assert stop.value.partial is not None
    assert stop.value.partial.segments
    assert told == sorted(told)
    again = model.stream(
        np.tile(one, 2), vad_filter=False, progress=lambda done, total: told.append(done / total)
    )
    told.clear()
    list(again)
    assert told[-1] == 1.0


def test_a_device_that_stays_lost_is_replaced_by_numpy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends, "LOSS_COUNTS", type(backends.LOSS_COUNTS)())
    asked: list[str] = []

    def open_gpu(device: str) -> Any:
        asked.append(device)
        raise DeviceError("no adapter any more")

    monkeypatch.setattr(backends, "open_gpu", open_gpu)
    folder = FOLDERS[0] / "parakeet_tdt"
    lost = ParakeetRunner(load_weights(folder), Reference())
    rebuild = RunnerFactory(NETWORK, folder, "f32", "gpu:1", lost)
    again = rebuild()
    assert asked == ["gpu:1"]
    assert again is not lost
    assert rebuild.runner is again
    assert "not opened again (no adapter any more); using NumPy" in caplog.text
    rebuild(), rebuild()
    assert asked == ["gpu:1"] * backends.MAX_LOSSES
    assert "lost 3 times" in caplog.text
