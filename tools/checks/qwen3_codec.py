"""Qwen3-TTS's codec and speaker encoder: every array of theirs that the goldens hold, by stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from checks.report import Report, stages
from oscine.audio.mel import mel_filters
from oscine.audio.mel_speaker import N_FFT, SAMPLE_RATE, speaker_mel
from oscine.models.qwen3_tts.codec_runner import CodecDecoder, CodecEncoder, CodecStream
from oscine.models.qwen3_tts.codec_weights import load_codec
from oscine.models.qwen3_tts.speaker import SpeakerEncoder
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights
from oscine.ops import Backend

BANK = 1e-7
STAGE, DEVICE = 1e-4, 1e-3  # of a stage's largest value, or of 1: in NumPy, and on a GPU
CUTS = ((1,), (4, 1))  # lengths of calls that the long codes are cut to, besides the usual ones
SEAM, BEFORE_SEAM, AFTER_SEAM, STEP = 300, 1500, 3000, 37  # what is kept of the longest waveform

Arrays = dict[str, np.ndarray]


def limit(report: Report, want: np.ndarray) -> float:
    """The most that a stage may differ."""
    peak = float(np.abs(want).max(initial=0.0))
    return DEVICE * peak if report.cosines else STAGE * max(1.0, peak)


def compare_stages(seen: Arrays, arrays: Arrays, prefix: str, report: Report) -> set[str]:
    """Every stage that has a golden, most of which lie channels first; the goldens' names."""
    compared = set()
    for stage, found in seen.items():
        name = prefix + stage.partition(".")[2]
        if name not in arrays:
            continue
        want = arrays[name]
        if want.ndim == 1:
            found = found.reshape(-1)
        elif ".tf_" not in stage:
            found = found.T
            if not found[len(want) :].any():  # channels that fill up the last four
                found = found[: len(want)]
        report.array(name, found, want, limit(report, want))
        compared.add(name)
    return compared


def check(folder: Path, backend: Backend, report: Report) -> None:
    """Compare the case `codec`."""
    with np.load(folder / "expected.npz") as stored:
        arrays = dict(stored)
    config, decoder, encoder = load_codec(folder / "ckpt")
    report.begin(folder.name, str(config))
    compared = check_decoder(CodecStream(CodecDecoder(decoder, config, backend)), arrays, report)
    for calls in CUTS:
        cut = CodecStream(CodecDecoder(decoder, config, backend, calls))
        want = arrays["long_wav_whole"]
        found = cut.decode(arrays["long_codes"])
        report.array(f"long_wav_whole by {calls}", found, want, limit(report, want))
    compared |= check_encoder(CodecEncoder(encoder, config, backend), arrays, report)
    compared |= check_codes(CodecEncoder(encoder, config, backend, 2), arrays, report)
    report.not_yet(name for name in arrays if name not in compared)


# Codes to waveform


def check_decoder(decoder: CodecStream, arrays: Arrays, report: Report) -> set[str]:
    """Stage by stage, then whole, in upstream's chunks, and past their border."""
    compared = {"dec_codes", "long_codes", "xl_codes", "long_wav_whole"}
    for prefix in ("dec_", "long_"):
        decoder.reset()
        with stages() as seen:
            decoder.decode(arrays[f"{prefix}codes"])
        compared |= compare_stages(seen, arrays, prefix, report)

    def compare(name: str, found: np.ndarray) -> None:
        report.array(name, found, arrays[name], limit(report, arrays[name]))
        compared.add(name)

    decoder.reset()
    compare("dec_wav", decoder.decode(arrays["dec_codes"]))
    compare("long_wav_chunk7_ctx3", decoder.chunked_decode(arrays["long_codes"], 7, 3))
    compare("long_wav_api", decoder.chunked_decode(arrays["long_codes"]))
    longest, seam = decoder.chunked_decode(arrays["xl_codes"]), SEAM * decoder.config.hop_length
    compare("xl_wav_every37", longest[::STEP])
    compare("xl_wav_seam", longest[seam - BEFORE_SEAM : seam + AFTER_SEAM])
    return compared


# Waveform to codes


def check_encoder(encoder: CodecEncoder, arrays: Arrays, report: Report) -> set[str]:
    """Stage by stage; codes must be the very same."""
    with stages() as seen:
        encoder.encode(arrays["enc_wav"])
    last = [name for name in seen if ".conv" in name][-1]
    seen["encoder.seanet"] = seen[last]
    compared = compare_stages(seen, arrays, "enc_", report)
    return compared | check_codes(encoder, arrays, report)


def check_codes(encoder: CodecEncoder, arrays: Arrays, report: Report) -> set[str]:
    """Of a length that ends within a frame, one shorter than a frame, one of whole frames."""
    compared = set()
    for case in ("enc", "encshort", "encexact"):
        found = encoder.encode(arrays[f"{case}_wav"])
        name = f"{case}_codes by {encoder.chunk_samples}"
        report.same(name, found.tolist(), arrays[f"{case}_codes"].tolist())
        compared |= {f"{case}_{kind}" for kind in ("wav", "codes", "gap")}
    return compared


# References of voices


def check_references(
    weights: Qwen3TtsWeights, arrays: Arrays, backend: Backend, report: Report
) -> set[str]:
    """Of a base model: the speaker encoder by stage, the vectors and codes of runs' references."""
    config = weights.config
    assert weights.speaker is not None and config.speaker_encoder is not None
    speaker = SpeakerEncoder(weights.speaker, config.speaker_encoder, backend)
    encoder = CodecEncoder(weights.encoder, config.codec, backend)
    bank = mel_filters(config.speaker_encoder.mel_dim, N_FFT, SAMPLE_RATE)
    report.array("mel_filterbank", bank, arrays["mel_filterbank"], BANK)
    compared = {"mel_filterbank", "ref_wav_short", "ref_wav_long"}
    for recording in ("spk_a/", "spk_b/"):
        compared |= check_speaker(speaker, arrays, recording, report)
    for name in [name for name in arrays if name.endswith("/speaker_embedding")]:
        run = name.removesuffix("/speaker_embedding")
        samples = arrays["ref_wav_long" if run == "icl_text_shorter" else "ref_wav_short"]
        report.array(name, speaker.embed(samples), arrays[name], limit(report, arrays[name]))
        codes = f"{run}/ref_codes"
        if codes in arrays:
            report.same(codes, encoder.encode(samples).tolist(), arrays[codes].tolist())
        compared |= {name, codes}
    return compared


def check_speaker(speaker: SpeakerEncoder, arrays: Arrays, at: str, report: Report) -> set[str]:
    """One recording, stage by stage."""
    mel, want = arrays[f"{at}mel"], arrays[f"{at}embedding"]
    found = speaker_mel(arrays[f"{at}wav"], speaker.config.mel_dim)
    report.array(f"{at}mel", found, mel, STAGE)
    with stages() as seen:
        vector = speaker.embed_mel(mel)
    report.array(f"{at}embedding", vector, want, limit(report, want))
    compared = compare_stages(seen, arrays, at, report)
    return compared | {f"{at}wav", f"{at}mel", f"{at}embedding"}
