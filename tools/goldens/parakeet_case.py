"""One Parakeet case: weights drawn until they say something, then every stage written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from parakeet_upstream import collapse, encode, first_block, greedy, lead, moved_marks, runs_enough
from parakeet_weights import (
    PUNCTUATION,
    SPACE,
    calibrate,
    draw_pieces,
    make_model,
    round_to,
    save_model,
    set_weights,
    write_tokenizer,
)
from transformers import GenerationConfig, ParakeetFeatureExtractor
from whisper_case import f32, i32
from whisper_weights import rng_for

TRIALS = 4000
MARGIN = {"ctc": 0.008, "tdt": 0.008, "rnnt": 0.005}


class Build:
    """Makes one case in `folder`; `audio` are the recording and the shorter one, int16."""

    def __init__(
        self, case: str, seed: int, folder: Path, audio: list[np.ndarray], p: dict[str, Any]
    ) -> None:
        self.case, self.seed, self.folder, self.p = case, seed, folder, p
        self.kind: str = p["kind"]
        self.samples = [samples.astype(np.float32) / np.float32(32768) for samples in audio]
        self.pieces, merges = draw_pieces(self.kind, p["pieces"], rng_for(seed, case, "tok"))
        self.labels, self.blank = len(self.pieces) + 1, len(self.pieces)
        self.extractor = ParakeetFeatureExtractor(feature_size=p["mels"])
        self.processor = write_tokenizer(folder, self.kind, self.pieces, merges, self.extractor)
        self.features = [self.extracted(samples) for samples in self.samples]
        self.durations = list(p["dur"]) if self.kind == "tdt" else None

    def extracted(self, samples: np.ndarray) -> torch.Tensor:
        """The valid frames of one recording."""
        given = self.extractor(samples, sampling_rate=16000, return_tensors="pt")
        count = len(samples) // 160
        assert int(given["attention_mask"].sum()) == count
        return given["input_features"][0, :count]

    def run(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and results, with the checkpoint written."""
        for trial in range(TRIALS):
            found = self.attempt(trial)
            if found is not None:
                break
        else:
            raise SystemExit(f"{self.case}: no acceptable weights")
        model = found["model"]
        if self.kind != "ctc":
            model.generation_config = GenerationConfig(
                decoder_start_token_id=self.blank, pad_token_id=2
            )
            if self.durations:
                extra = range(self.labels, self.labels + len(self.durations))
                model.generation_config.suppress_tokens = list(extra)
        save_model(model, self.folder, self.p["dtype"])
        arrays, meta = self.stages(model)
        meta |= {"trial": trial, "margin": found["margin"]}
        decoded = self.ctc_goldens if self.kind == "ctc" else self.transducer_goldens
        decoded(model, found, arrays, meta)
        return arrays, meta

    def attempt(self, trial: int) -> dict[str, Any] | None:
        """One set of weights; None if what it says proves too little or is too close a call."""
        rng = rng_for(self.seed, self.case, "w", trial)
        embedding, head = rng.uniform(1.0, 2.5), rng.uniform(1.6, 2.6)
        silence = rng.uniform(2.0, 7.0) if self.kind == "rnnt" else rng.uniform(0.5, 3.5)
        model = make_model(self.p, self.labels)
        set_weights(model, rng, embedding, head)
        features, subsampling = self.features[0], model.encoder.subsampling
        rows = subsampling(features[None], None) * model.encoder.input_scale
        for parameter in (subsampling.linear.weight, subsampling.linear.bias):
            parameter.mul_(1.0 / float(rows.std()))  # unit size, whatever the scaling
        encoded = encode(model.encoder, features)[2][-1]
        if self.kind == "ctc":
            self.talk_ctc(model, encoded, rng, silence)
        else:
            self.talk(model, encoded, rng, silence)
        round_to(model, self.p["dtype"])
        encoded = encode(model.encoder, features)[2][-1]
        if self.kind == "ctc":
            logits = model.ctc_head(encoded[None])[0]
            frames = logits.argmax(-1).numpy()
            margin = min(lead(row) for row in logits)
            if margin < MARGIN["ctc"] or not runs_enough(frames, self.blank):
                return None
            return {"model": model, "margin": margin, "logits": logits, "frames": frames}
        projected = model.encoder_projector(encoded)
        result = greedy(model, projected, self.labels, self.durations, 10)
        if result is None or not self.says_enough(result):
            return None
        return {"model": model, "projected": projected, **result}

    def talk_ctc(
        self, model: Any, encoded: torch.Tensor, rng: np.random.Generator, silence: float
    ) -> None:
        """All labels in play, the blank ahead."""
        weight, bias = model.ctc_head.weight, model.ctc_head.bias
        weight.mul_((1.6 / (encoded @ weight[:, :, 0].T).std(0))[:, None, None])
        noise = torch.from_numpy(rng.standard_normal(self.labels).astype(np.float32))
        bias.copy_(-(encoded @ weight[:, :, 0].T).mean(0) + 0.3 * noise)
        bias[self.blank] += silence

    def talk(
        self, model: Any, encoded: torch.Tensor, rng: np.random.Generator, silence: float
    ) -> None:
        """All labels and durations in play, the blank ahead, control pieces never."""
        calibrate(model.encoder_projector, encoded, rng, 1.0)
        ids = torch.from_numpy(rng.integers(3, self.labels, (1, 64)))
        rows = model.decoder.lstm(model.decoder.embedding(ids))[0][0]
        calibrate(model.decoder.decoder_projector, rows, rng, 0.8)
        projected = model.encoder_projector(encoded)[:, None]
        joined = model.joint.activation(projected + model.decoder.decoder_projector(rows)[None])
        mean = model.joint.head(joined).mean((0, 1))
        offset = torch.zeros_like(mean)
        offset[self.blank] = silence
        offset[:3] = -4.0
        model.joint.head.bias.add_(offset - mean)

    def says_enough(self, result: dict[str, Any]) -> bool:
        """Clear decisions, many labels, every duration, both cases of duration 0."""
        tokens, trace = result["tokens"], result["trace"]
        plenty = 10 <= len(tokens) <= 140 and len(set(tokens)) >= 7 and min(tokens) >= 3
        if result["margin"] < MARGIN[self.kind] or not plenty or len(trace) - len(tokens) < 6:
            return False
        written = [self.pieces[token] for token in tokens]
        marks = any(piece in PUNCTUATION for piece in written)
        if not marks or not any(piece.startswith(SPACE) for piece in written):
            return False
        if self.durations is None:
            frames = [frame for frame, token, _, _ in trace if token != self.blank]
            gaps = np.diff(sorted(set(frames)))
            several = len(set(frames)) < len(frames)
            return several and result["forced"] <= 5 and len(set(gaps)) >= 3 and max(gaps) <= 24
        zero = {token == self.blank for _, token, i, _ in trace if self.durations[i] == 0}
        used = {index for _, _, index, _ in trace}
        return used == set(range(len(self.durations))) and zero == {True, False}

    def stages(self, model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Front end and encoder."""
        samples, features = self.samples[0], self.features[0]
        count = len(features)
        emphasised = np.concatenate([samples[:1], samples[1:] - np.float32(0.97) * samples[:-1]])
        signal = torch.from_numpy(emphasised.astype(np.float32))[None]
        raw = self.extractor._torch_extract_fbank_features(signal, "cpu")[0]
        subsampled, positions, layers = encode(model.encoder, features)
        short = encode(model.encoder, self.features[1])[2][-1]
        arrays = {
            "mel_raw_first64": f32(raw[:64]),
            "mel_raw_last17": f32(raw[count - 16 : count + 1]),
            "mel": f32(features),
            "mel_filters": f32(self.extractor.mel_filters),
            "subsampled": f32(subsampled),
            "pos_emb": f32(positions),
            "enc_out": f32(layers[-1]),
            "short_enc_out": f32(short),
        }
        arrays |= {f"enc_layer{index}": f32(rows) for index, rows in enumerate(layers)}
        parts = first_block(model.encoder, subsampled, positions[None])
        arrays |= {name: f32(rows) for name, rows in parts.items()}
        for window in self.p["local"]:
            local = encode(model.encoder, features, window)[2][-1]
            arrays[f"local{window}_enc_out"] = f32(local)
        self.batch_agrees(model, layers[-1], short)
        meta = {
            "case": self.case,
            "seed": self.seed,
            "hparams": {name: str(value) for name, value in self.p.items()},
            "pieces": self.pieces,
            "vocab_size_with_blank": self.labels,
            "blank": self.blank,
            "seconds_per_frame": 0.01 * self.p["sub"],
            "mel_frames": count,
            "enc_frames": int(layers[-1].shape[0]),
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        }
        return arrays, meta

    def batch_agrees(self, model: Any, whole: torch.Tensor, short: torch.Tensor) -> None:
        """Upstream's padded batch of both recordings gives what each gives alone."""
        both = self.extractor(self.samples, sampling_rate=16000, return_tensors="pt")
        rows = model.encoder(both["input_features"], attention_mask=both["attention_mask"])
        for line, alone in zip(rows.last_hidden_state, (whole, short), strict=True):
            assert torch.allclose(line[: alone.shape[0]], alone, atol=5e-4)

    def ctc_goldens(self, model: Any, found: dict, arrays: dict, meta: dict) -> None:
        """Logits, frames, labels with their frames, and upstream's text."""
        frames = found["frames"]
        runs = collapse(frames.tolist(), self.blank)
        arrays["ctc_logits"], arrays["ctc_frame_argmax"] = f32(found["logits"]), i32(frames)
        for name, column in (("tokens", 0), ("start_frame", 1), ("end_frame", 2)):
            arrays[f"ctc_{name}"] = i32([run[column] for run in runs])
        given = self.extractor(self.samples[0], sampling_rate=16000, return_tensors="pt")
        sequence = model.generate(**given)
        assert sequence[0, : len(frames)].tolist() == frames.tolist()
        meta["text"] = self.processor.decode(sequence[0], skip_special_tokens=True)
        meta["text_from_pieces"] = self.text([run[0] for run in runs])

    def text(self, tokens: list[int]) -> str:
        """Pieces joined, spaces for their sign."""
        return "".join(self.pieces[token] for token in tokens).replace(SPACE, " ").strip()

    def transducer_goldens(self, model: Any, found: dict, arrays: dict, meta: dict) -> None:
        """Prediction and joint networks, the trace, times, and upstream's text."""
        projected, decoder = found["projected"], model.decoder
        ids = rng_for(self.seed, self.case, "seq").integers(3, len(self.pieces), 9)
        tokens = [self.blank, *map(int, ids)]
        rows, (hidden, cell) = decoder.lstm(decoder.embedding(torch.tensor([tokens])))
        predicted = decoder.decoder_projector(rows)[0]
        frames = np.linspace(0, projected.shape[0] - 1, 6).astype(int)
        joined = model.joint.activation(projected[frames][:, None] + predicted[None])
        arrays |= {
            "enc_proj": f32(projected),
            "pred_tokens": i32(tokens),
            "pred_lstm": f32(rows[0]),
            "pred_proj": f32(predicted),
            "pred_state_h": f32(hidden[:, 0]),
            "pred_state_c": f32(cell[:, 0]),
            "joint_frames": i32(frames),
            "joint_logits": f32(model.joint.head(joined)),
            "trace": i32(found["trace"]),
            "tokens": i32(found["tokens"]),
            "trace_logits": f32(found["logits"][:12]),
        }
        seconds = 0.01 * self.p["sub"]
        times = [
            (token, t * seconds, (t + (moved if self.durations else 1)) * seconds)
            for t, token, _, moved in found["trace"]
            if token != self.blank
        ]
        arrays["token_start_s"] = f32([start for _, start, _ in times])
        arrays["token_end_s"] = f32([end for _, _, end in times])
        shown = [(self.pieces[token].replace(SPACE, "") or SPACE, *at) for token, *at in times]
        meta["timestamps_punctuation_rule"] = moved_marks(shown)  # type: ignore[arg-type]
        meta["text_from_pieces"] = self.text(found["tokens"])
        meta["trace_columns"] = ["frame", "token", "duration index, -1 for rnnt", "frames moved"]
        for most in self.p["max_sym"]:
            result = greedy(model, projected, self.labels, self.durations, most)
            assert result is not None
            arrays[f"own_trace_maxsym{most}"] = i32(result["trace"])
            meta[f"own_trace_maxsym{most}"] = {
                "margin": result["margin"],
                "forced_advances": result["forced"],
            }
        self.agree(model, found, meta)

    def agree(self, model: Any, found: dict, meta: dict) -> None:
        """transformers moves by the duration's index: the same where durations are their index."""
        count = len(self.durations or ())
        same = self.durations in (None, list(range(count)))
        projected = found["projected"]
        wanted = (
            found if same else greedy(model, projected, self.labels, list(range(count)), 1_000_000)
        )
        if wanted is None:
            return
        given = self.extractor(self.samples[0], sampling_rate=16000, return_tensors="pt")
        result = model.generate(**given)
        expected = [self.blank, *(token for _, token, _, _ in wanted["trace"])]
        assert result.sequences[0].tolist()[: len(expected)] == expected
        moved = [moved for *_, moved in wanted["trace"]]
        assert result.durations[0].tolist()[1 : len(expected)] == moved
        if same:
            text, times = self.processor.decode(
                result.sequences, durations=result.durations, skip_special_tokens=True
            )
            meta["hf_text"], meta["hf_timestamps"] = text[0], times[0]
        else:
            meta["note"] = "transformers moves by the duration's index; this follows NeMo"
