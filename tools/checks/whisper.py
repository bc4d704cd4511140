"""Whisper cases: every array and sequence that tools/goldens/whisper.py writes, stage by stage.

A stage is fed the golden input of that stage where there is one, so that a difference shows where
it arises; the long form runs from its recording.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from checks.report import Report, stages
from oscine import ops
from oscine.audio.io import decode as decode_audio
from oscine.audio.mel import log_mel
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.models.whisper import executors
from oscine.models.whisper.fallback import best_hypothesis
from oscine.models.whisper.prompt import PromptHistory, build_prompt
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.segments import split_at_timestamps
from oscine.models.whisper.sequences import (
    Alignment,
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    Hypothesis,
    LanguageSequence,
)
from oscine.models.whisper.timing import attention_matrix, dtw
from oscine.models.whisper.tokens import resolve_special_tokens
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops.reference import Reference
from oscine.text.whisper import load_tokenizer

MEL, ENCODER, LOGITS, LOGPROB, PROBABILITY, SECONDS = 2e-4, 2e-4, 1e-3, 1e-3, 1e-3, 1e-6
ATTENTION = 2e-3  # deviations from a mean

# Upstream has no stop after equal tokens, and random weights may well repeat themselves.
executors.MAX_TOKEN_REPEATS = 0


class Window:
    """An encoded window on an engine: logits after given tokens, and decoding."""

    def __init__(self, engine: Engine[WhisperRunner], mel: np.ndarray, norm: ops.LayerNorm) -> None:
        self.engine, self.audio, self.norm = engine, EncoderInput(mel), norm

    def stages(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """One pass over given tokens [N]: rows [N, d or V] of the decoder's stages by name, and
        "normed", the rows that the logits are made of."""
        with stages() as seen:
            self.align([int(token) for token in tokens], 0, 1)
        last = max(name for name in seen if name.startswith("decoder.layer"))
        found = {name: rows[: len(tokens)] for name, rows in seen.items()}
        return found | {"normed": Reference().layer_norm(found[last], self.norm)}

    def logits_after(self, tokens: np.ndarray) -> np.ndarray:
        """The logits [N, V] after each of the tokens [N]."""
        return self.stages(tokens)["decoder.logits"]

    def steps(self, request: DecodingRequest, count: int) -> np.ndarray:
        """Unfiltered logits of the first picks, each from the cached step that makes it."""
        with stages() as seen:
            self.decode(request)
        rows = seen["decoder.logits"]  # of the prompt two: its last token, and where it starts
        return np.concatenate([rows[:1], rows[2 : count + 1]])

    def decode(self, request: DecodingRequest) -> tuple[Hypothesis, ...]:
        """The rows or beams of a request."""
        return self.engine.submit(DecodingSequence(self.audio, request)).wait()

    def align(self, prompt: list[int], end: int, frames: int) -> Alignment:
        """Where forced tokens look."""
        return self.engine.submit(AlignmentSequence(self.audio, tuple(prompt), end, frames)).wait()


class Case:
    """One folder: its goldens, and the checkpoint in it on a backend."""

    def __init__(self, folder: Path, backend: ops.Backend, report: Report) -> None:
        self.folder, self.backend, self.report = folder, backend, report
        self.meta: dict[str, Any] = json.loads((folder / "golden.json").read_text("utf-8"))
        with np.load(folder / "golden.npz") as stored:
            self.golden = dict(stored)
        self.done: set[str] = set()

    def want(self, name: str) -> np.ndarray:
        """A golden array, noted as compared."""
        self.done.add(name)
        return self.golden[name]

    def close(self) -> None:
        """Name what nothing has looked at."""
        self.report.not_yet(sorted(set(self.golden) - self.done))


def check(folder: Path, backend: ops.Backend, report: Report) -> None:
    """Compare everything in one case."""
    case = Case(folder, backend, report)
    if "files" in case.meta:
        check_formats(case)
    else:
        WhisperCase(case).check()
    case.close()


def check_formats(case: Case) -> None:
    """Check the encoder and logits of one network in every file format."""
    report = case.report
    mel, tokens = case.want("mel"), case.want("tokens")
    for key, name in case.meta["files"].items():
        weights = load_weights(case.folder / name)
        engine = Engine(WhisperRunner(weights, case.backend, f32_cross_kv=True))
        report.begin(case.folder.name, f"{name} ({weights.format}, {about(weights)})")
        encoded = engine.call(lambda runner: runner.encode_one(time_first(mel)))
        report.array(f"{key}_enc", encoded, case.want(f"{key}_enc"), ENCODER)
        assert weights.decoder is not None
        window = Window(engine, time_first(mel), weights.decoder.ln)
        logits = window.logits_after(tokens)
        report.array(f"{key}_logits", logits, case.want(f"{key}_logits"), LOGITS)


class WhisperCase:
    """A case with a recording: front end, encoder, decoder, greedy decoding and long form."""

    def __init__(self, case: Case) -> None:
        self.case, self.report, self.meta = case, case.report, case.meta
        self.weights = load_weights(case.folder)
        self.engine = Engine(WhisperRunner(self.weights, case.backend, f32_cross_kv=True))
        self.window = self.encoded(time_first(case.golden["mel"]))
        self.tokenizer = load_tokenizer(self.weights.folder, self.weights.vocabulary)
        self.ids = self.meta["ids"]
        self.report.begin(case.folder.name, about(self.weights))

    def check(self) -> None:
        """Everything, in the order of the data's way."""
        self.front_end()
        self.encoder()
        self.text()
        self.forced()
        self.first_position()
        for name in ("greedy_nots", "greedy_ts"):
            self.greedy(name)
        self.beams()
        self.alignment()
        if "long_mel" in self.meta:
            self.long_form()

    def encoded(self, mel: np.ndarray) -> Window:
        """A window [2S, n_mels] on the engine."""
        assert self.weights.decoder is not None
        return Window(self.engine, mel, self.weights.decoder.ln)

    def recording(self, suffix: str) -> np.ndarray:
        """The case's samples at 16 kHz."""
        name = f"{self.case.folder.name}{suffix}.wav"
        return decode_audio(self.case.folder.parent / "audio" / name).samples

    def front_end(self) -> None:
        config = self.weights.config
        length = 320 * config.n_audio_ctx
        samples = self.recording("")[:length]
        mel = log_mel(np.pad(samples, (0, length - len(samples))), config.n_mels)
        self.report.array("mel", mel.T, self.case.want("mel"), MEL)

    def encoder(self) -> None:
        mel = time_first(self.case.golden["mel"])
        stride = self.meta.get("frame_stride_of_enc_stem_and_layers", 1)
        with stages() as seen:
            encoded = self.engine.call(lambda runner: runner.encode_one(mel))
        layers = [f"layer{index}" for index in range(self.weights.config.n_audio_layer)]
        for stage in ("stem", *layers):
            rows, name = seen[f"encoder.{stage}"][::stride], f"enc_{stage}"
            self.report.array(name, rows, self.case.want(name), ENCODER)
        self.report.array("enc_out", encoded, self.case.want("enc_out"), ENCODER)

    def text(self) -> None:
        """Special ids found in the tokenizer, and lists found in the configuration."""
        tokens, config = (
            resolve_special_tokens(self.tokenizer, self.weights.config),
            self.weights.config,
        )
        found = {
            "<|endoftext|>": tokens.eot,
            "<|startoftranscript|>": tokens.sot,
            "<|translate|>": tokens.translate,
            "<|transcribe|>": tokens.transcribe,
            "<|startoflm|>": tokens.sot_lm,
            "<|startofprev|>": tokens.sot_prev,
            self.no_speech_name(): tokens.no_speech,
            "<|notimestamps|>": tokens.no_timestamps,
            "<|0.00|>": tokens.timestamp_begin,
        } | {f"<|{code}|>": id for code, id in tokens.languages.items()}
        named = {name: self.ids[name] for name in found if name in self.ids}
        self.report.same("ids", found, named)
        for name in ("suppress_tokens", "begin_suppress_tokens"):
            self.report.same(name, list(getattr(config, name) or ()), sorted(self.meta[name]))
        heads = [list(pair) for pair in config.alignment_heads or ()]
        self.report.same("alignment_heads", heads, self.meta["alignment_heads"])

    def no_speech_name(self) -> str:
        """Older vocabularies call it otherwise."""
        return next(n for n in ("<|nospeech|>", "<|nocaptions|>") if n in self.ids)

    def forced(self) -> None:
        """Given tokens: logits, and for the first sequence every layer's hidden rows."""
        for name in sorted(n for n in self.case.golden if re.fullmatch(r"tf\d+_tokens", n)):
            tokens = self.case.want(name)
            logits = name.replace("tokens", "logits")
            self.report.array(
                logits, self.window.logits_after(tokens), self.case.want(logits), LOGITS
            )
        seen = self.window.stages(self.case.want("tf0_tokens"))
        normed = seen["normed"]
        self.report.array("tf0_dec_out", normed, self.case.want("tf0_dec_out"), ENCODER)
        hidden = self.case.want("tf0_dec_hidden")  # the last is normed: transformers' convention
        names = ["embedding", *(f"layer{index}" for index in range(len(hidden) - 2))]
        layers = [seen[f"decoder.{name}"] for name in names]
        self.report.array("tf0_dec_hidden", np.stack([*layers, normed]), hidden, ENCODER)

    def first_position(self) -> None:
        """no_speech_prob and language probabilities after the start token."""
        start = self.ids["<|startoftranscript|>"]
        logits = self.window.logits_after(np.array([start]))[0]
        self.report.array("sot_logits", logits, self.case.want("sot_logits"), LOGITS)
        request = self.request([start], timestamps=False, limit=1)
        (picked,) = self.window.decode(request)
        self.report.array(
            "no_speech_prob", picked.no_speech_prob, self.meta["no_speech_prob"], PROBABILITY
        )
        if "language_probs" not in self.meta:
            return
        wanted = self.meta["language_probs"]
        languages = [self.ids[f"<|{code}|>"] for code in wanted]
        tokens = resolve_special_tokens(self.tokenizer, self.weights.config)
        detect = LanguageSequence(self.window.audio, tokens)
        shares = self.engine.submit(detect).wait()[[detect.ids.index(id) for id in languages]]
        self.report.array("language_probs", shares, list(wanted.values()), PROBABILITY)
        detected = list(wanted)[int(shares.argmax())]
        self.report.same("detected_language", detected, self.meta["detected_language"])

    def request(
        self, prompt: list[int], timestamps: bool, limit: int, sot: int = 0
    ) -> DecodingRequest:
        """Greedy decoding with the case's lists."""
        return DecodingRequest(
            prompt=tuple(int(token) for token in prompt),
            sot_index=sot,
            suppress_tokens=tuple(self.meta["suppress_tokens"]),
            begin_suppress_tokens=tuple(self.meta["begin_suppress_tokens"]),
            eot=self.ids["<|endoftext|>"],
            timestamp_begin=self.ids["<|0.00|>"],
            no_timestamps=self.ids["<|notimestamps|>"],
            no_speech=self.ids[self.no_speech_name()],
            timestamps=timestamps,
            max_initial_timestamp_index=self.meta["max_initial_timestamp_index"],
            max_new_tokens=limit,
        )

    def greedy(self, name: str) -> None:
        """SpecialTokens, sums and text, and the first steps' logits before any filter."""
        prompt = [int(token) for token in self.case.want(f"{name}_prompt")]
        request = self.request(prompt, name == "greedy_ts", self.meta["max_new_tokens"])
        (result,), about = self.window.decode(request), self.meta[name]
        self.report.same(
            f"{name}_tokens", list(result.tokens), self.case.want(f"{name}_tokens").tolist()
        )
        for figure in ("sum_logprob", "avg_logprob"):
            got, limit = getattr(result, figure), LOGPROB
            if figure.startswith("sum"):
                limit *= len(result.tokens) + 1
            self.report.array(f"{name}.{figure}", got, about[figure], limit)
        text = self.tokenizer.decode(id for id in result.tokens if id < request.eot)
        self.report.same(f"{name}.text", text, about["text"])
        wanted = self.case.want(f"{name}_step_logits")
        steps = self.window.steps(request, len(wanted))
        self.report.array(f"{name}_step_logits", steps, wanted, LOGITS)

    def beams(self) -> None:
        """Beam search: the best beam's tokens and its log-probability."""
        about = self.meta["own_beam"]
        prompt = [int(token) for token in self.case.golden[about["prompt"]]]
        width = about["beam_size"]
        request = replace(
            self.request(prompt, False, self.meta["max_new_tokens"]),
            beam_size=width,
            max_candidates=round(width * about["patience"]),
        )
        found = best_hypothesis(self.window.decode(request), about["length_penalty"])
        wanted = self.case.want("own_beam_tokens").tolist()
        self.report.same("own_beam_tokens", list(found.tokens), wanted)
        limit = LOGPROB * (len(wanted) + 1)
        self.report.array("own_beam.sum_logprob", found.sum_logprob, about["sum_logprob"], limit)

    def alignment(self) -> None:
        """Word times: attention of the alignment heads, its warping path, each token's share."""
        about = self.meta["own_align"]
        text = [int(token) for token in self.case.golden[about["text_tokens"]]]
        end = self.ids["<|endoftext|>"]
        start = [*self.meta["sot_sequence"], self.ids["<|notimestamps|>"]]
        found = self.window.align([*start, *text, end], end, about["num_frames"] // 2)
        matrix = attention_matrix(found.weights, len(start) - 1)
        self.report.array("own_align_matrix", matrix, self.case.want("own_align_matrix"), ATTENTION)
        texts, times = dtw(-matrix)
        self.report.same(
            "own_align path",
            [list(map(int, texts)), list(map(int, times))],
            [self.case.want(f"own_align_{name}_idx").tolist() for name in ("text", "time")],
        )
        jumps = np.diff(texts, prepend=-1) > 0
        self.report.same(
            "own_align_jump_frame",
            [int(time) for time in times[jumps]],
            self.case.want("own_align_jump_frame").tolist(),
        )
        shares = found.probabilities[len(start) - 1 :][: len(text)]
        self.report.array("own_align_prob", shares, self.case.want("own_align_prob"), PROBABILITY)

    def long_form(self) -> None:
        """The second recording, window by window, with and without the text before as context."""
        mel = log_mel(self.recording("_2"), self.weights.config.n_mels)
        about = self.meta["long_mel"]
        self.report.same("long_mel.frames", len(mel), about["frames"])
        self.report.array("long_mel.max", mel.max(), about["max"], MEL)
        mean = about["sum"] / mel.size
        self.report.array("long_mel.mean", mel.mean(dtype=np.float64), mean, MEL)
        limits = {"long_nocond": self.meta["max_new_tokens"]}
        limits["long_cond"] = self.meta.get("own_long_cond_max_new", limits["long_nocond"])
        for name, limit in limits.items():
            windows, segments = self.windows(mel, limit, condition=name == "long_cond")
            self.report.same(f"{name} windows", windows, self.meta[f"own_{name}_windows"])
            wanted = self.meta[f"own_{name}"]
            tokens = [segment["tokens"] for segment in segments]
            self.report.same(f"{name} segments", tokens, [segment["tokens"] for segment in wanted])
            if len(segments) == len(wanted):
                times = [[segment["start"], segment["end"]] for segment in segments]
                golden = [[segment["start"], segment["end"]] for segment in wanted]
                self.report.array(f"{name} times", times, golden, SECONDS)

    def windows(self, mel: np.ndarray, limit: int, condition: bool) -> tuple[list[Any], list[Any]]:
        """openai's seek loop at temperature 0, without judging: windows and segments.

        As the golden has it, the recording has no silence appended, and what is missing from the
        last window is 0.0.
        """
        config, end = self.weights.config, self.ids["<|endoftext|>"]
        history = PromptHistory((), config.n_text_ctx // 2 - 1, carry_initial_prompt=False)
        windows, segments, seek = [], [], 0
        while seek < len(mel):
            size = min(config.window_frames, len(mel) - seek)
            window = np.zeros((config.window_frames, config.n_mels), np.float32)
            window[:size] = mel[seek : seek + size]
            before = history.prompt() if condition else ()
            start, previous = self.meta["sot_sequence"], self.ids["<|startofprev|>"]
            prompt, sot = build_prompt(before, start, (), previous, config.n_text_ctx)
            request = self.request(list(prompt), True, limit, sot)
            tokens = self.encoded(window).decode(request)[0].tokens
            windows.append({"seek": seek, "prompt": list(prompt), "tokens": list(tokens)})
            pieces, advance = split_at_timestamps(tokens, size, self.ids["<|0.00|>"])
            for piece in pieces:
                if piece.start != piece.end and any(id < end for id in piece.tokens):
                    history.extend(piece.tokens)
                    times = {"start": seek * 0.01 + piece.start, "end": seek * 0.01 + piece.end}
                    segments.append(times | {"tokens": list(piece.tokens)})
            seek += advance
        return windows, segments


def time_first(mel: np.ndarray) -> np.ndarray:
    """Goldens keep [n_mels, frames], oscine [frames, n_mels]."""
    return np.ascontiguousarray(mel.T, np.float32)


def about(weights: WhisperWeights) -> str:
    """The sizes that vary from case to case, for the reader."""
    c = weights.config
    return (
        f"width {c.n_audio_state}, heads {c.n_audio_head}, "
        f"layers {c.n_audio_layer}+{c.n_text_layer}, mels {c.n_mels}, "
        f"context {c.n_audio_ctx}/{c.n_text_ctx}, vocabulary {c.n_vocab}, "
        f"stored {weights.stored_dtype}"
    )
