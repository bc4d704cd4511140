"""One case with a recording: search for weights that prove something, then every stage's output."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from whisper_tokenizer import write_tokenizer
from whisper_upstream import Task, Upstream, align, beam_search, cuts, greedy, long_form
from whisper_weights import (
    draw_recipe,
    generation_config,
    model_config,
    rng_for,
    save_model,
    set_weights,
)

TRIALS = 2000


class Build:
    """One case with a recording."""

    def __init__(
        self, case: str, seed: int, folder: Path, audio: list[np.ndarray], p: dict
    ) -> None:
        self.case, self.seed, self.folder, self.p = case, seed, folder, p
        rng = rng_for(seed, case, "tok")
        self.tokenizer, self.ids, self.n_text = write_tokenizer(folder, p, p["msp"] + 1, rng)
        self.config = model_config(p, self.ids)
        self.generation = generation_config(p, self.ids, self.tokenizer)
        self.extractor = WhisperFeatureExtractor(
            feature_size=p["mels"], chunk_length=math.ceil(p["msp"] * 0.02)
        )
        self.extractor.n_samples, self.extractor.nb_max_frames = p["msp"] * 320, p["msp"] * 2
        self.samples = [one.astype(np.float32) / np.float32(32768.0) for one in audio]
        self.mel = self.features(self.samples[0], max_length=self.extractor.n_samples)
        whole = {"truncation": False, "padding": "longest"}
        self.long_mel = self.features(self.samples[1], **whole) if len(audio) > 1 else None
        language = [self.ids["<|de|>"], self.ids["<|transcribe|>"]] if p["multi"] else []
        self.start = [self.ids["<|startoftranscript|>"], *language]
        self.new = min(p["mtp"] // 2, p["max_new"])

    def features(self, samples: np.ndarray, **how: Any) -> np.ndarray:
        """transformers' log-mel [n_mels, frames]."""
        found = self.extractor(samples, sampling_rate=16000, return_tensors="np", **how)
        return found["input_features"][0]

    def task(self, upstream: Upstream, new: int | None = None) -> Task:
        """Decoding with this case's lists."""
        return Task(upstream, self.ids, self.generation, self.new if new is None else new)

    def attempt(self, trial: int) -> dict[str, Any] | None:
        """Random weights and their outputs, or None if the outputs prove too little."""
        rng = rng_for(self.seed, self.case, "w", trial)
        recipe = draw_recipe(rng, self.ids, self.p)
        model = WhisperForConditionalGeneration(self.config).eval()
        set_weights(model, rng, recipe)
        for tensor in model.state_dict().values():
            tensor.data.copy_(tensor.data.to(self.p["dtype"]).float())
        upstream = Upstream(model)
        task, encoded = self.task(upstream), upstream.encode(self.mel)
        silent = [*self.start, self.ids["<|notimestamps|>"]]
        plain = greedy(task, encoded["out"], silent, timestamps=False)
        if not self.says_enough(plain):
            return None
        timed = greedy(task, encoded["out"], self.start, timestamps=True)
        if not self.times_enough(timed):
            return None
        backwards = upstream.encode(self.mel[:, ::-1])["out"]
        if greedy(task, backwards, silent, timestamps=False)["tokens"] == plain["tokens"]:
            return None  # the text must depend on the audio
        beam = beam_search(task, encoded["out"], silent, *self.p["beam"])
        if beam[2] < 0.003 or (trial < 250 and beam[0] == plain["tokens"]):
            return None
        result = {"model": model, "upstream": upstream, "encoded": encoded, "trial": trial}
        result |= {"greedy_nots": plain, "greedy_ts": timed, "beam": beam}
        if self.long_mel is not None:
            result["long_nocond"] = self.long(upstream, self.new, condition=False)
            result["long_cond"] = self.long(upstream, self.long_new, condition=True)
            runs = [result["long_nocond"], result["long_cond"]]
            if None in runs or min(run["margin"] for run in runs) < 0.004:
                return None
            if len(runs[0]["segments"]) < 4:
                return None
        return result

    @property
    def long_new(self) -> int:
        """Budget beside a history of half the context."""
        return min(self.new, self.p["mtp"] // 2 - 4)

    def long(self, upstream: Upstream, new: int, condition: bool) -> dict | None:
        """The second recording."""
        task = self.task(upstream, new)
        return long_form(task, self.long_mel, self.start, self.p["mtp"], condition)

    def says_enough(self, result: dict) -> bool:
        """Text of some length and variety, well decided, that ends."""
        tokens = result["tokens"]
        long = 8 <= len(tokens) <= self.new and len(set(tokens)) >= 7
        decided = result["margin"] > 0.015 and result["done"]
        return long and decided and max(tokens) < self.ids["<|endoftext|>"]

    def times_enough(self, result: dict) -> bool:
        """Several timestamps around enough text, and nothing else."""
        stamps = sum(token >= self.ids["<|0.00|>"] for token in result["tokens"])
        text = sum(token < self.ids["<|endoftext|>"] for token in result["tokens"])
        clean = stamps + text == len(result["tokens"])
        return stamps >= 4 and text >= 6 and clean and result["margin"] > 0.015

    def run(self) -> dict[str, Any]:
        """Search, save the checkpoint, write the goldens."""
        attempts = (self.attempt(trial) for trial in range(TRIALS))
        found = next((attempt for attempt in attempts if attempt is not None), None)
        assert found is not None, f"{self.case}: no acceptable weights"
        model = found["model"]
        model.generation_config = self.generation
        save_model(model, self.folder, self.p["dtype"], self.p.get("shard"))
        self.generation.save_pretrained(self.folder)
        self.extractor.save_pretrained(self.folder)
        arrays, meta = self.stages(found)
        self.first_position(found, arrays, meta)
        self.decoded(found, arrays, meta)
        self.agree(found)
        self.own(found, arrays, meta)
        if self.long_mel is not None:
            self.long_goldens(found, meta)
        write_goldens(self.folder, arrays, meta)
        return meta

    def stages(self, found: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Encoder by layer; logits after given tokens."""
        p, ids, encoded = self.p, self.ids, found["encoded"]
        stride = p.get("stride", 1)
        arrays = {"mel": f32(self.mel), "enc_stem": f32(encoded["stem"][::stride])}
        arrays["enc_out"] = f32(encoded["out"])
        for i, rows in enumerate(encoded["layers"]):
            arrays[f"enc_layer{i}"] = f32(rows[::stride])
        rng = rng_for(self.seed, self.case, "seq")

        def text(count: int) -> list[int]:
            return [int(id) for id in rng.integers(0, self.n_text - 1, count)]

        first = [*self.start, ids["<|notimestamps|>"], *text(7)]
        second = [*self.start, ids["<|0.00|>"], *text(10)]
        second = [ids["<|startofprev|>"], *text(5), *second, ids["<|0.00|>"] + p["msp"] // 5]
        for i, tokens in enumerate((first, second)):
            arrays[f"tf{i}_tokens"] = i32(tokens)
            arrays[f"tf{i}_logits"] = f32(found["upstream"].logits(encoded["out"], tokens))
        hidden, out = found["upstream"].hidden(encoded["out"], first)
        arrays["tf0_dec_hidden"], arrays["tf0_dec_out"] = f32(hidden), f32(out)
        return arrays, {
            "case": self.case,
            "seed": self.seed,
            "trial": found["trial"],
            "hparams": {name: str(value) for name, value in p.items()},
            "vocab_size": max(ids.values()) + 1,
            "ids": {name: id for name, id in ids.items() if id <= ids["<|0.00|>"]},
            "n_text": self.n_text,
            "alignment_heads": self.generation.alignment_heads,
            "suppress_tokens": self.generation.suppress_tokens,
            "begin_suppress_tokens": self.generation.begin_suppress_tokens,
            "sot_sequence": self.start,
            "max_new_tokens": self.new,
            "frame_stride_of_enc_stem_and_layers": stride,
            "max_initial_timestamp_index": self.generation.max_initial_timestamp_index,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        }

    def first_position(self, found: dict, arrays: dict, meta: dict) -> None:
        """After the start token alone: silence and language."""
        start = self.ids["<|startoftranscript|>"]
        logits = found["upstream"].logits(found["encoded"]["out"], [start])[0]
        arrays["sot_logits"] = f32(logits)
        silence = self.ids[f"<|{self.p['nospeech']}|>"]
        meta["no_speech_prob"] = float(torch.softmax(logits, -1)[silence])
        if self.p["multi"]:
            codes = self.p["langs"]
            scores = logits[[self.ids[f"<|{code}|>"] for code in codes]]
            shares = torch.softmax(scores, -1).tolist()
            meta["language_probs"] = dict(zip(codes, shares, strict=True))
            meta["detected_language"] = codes[int(torch.argmax(scores))]

    def decoded(self, found: dict, arrays: dict, meta: dict) -> None:
        """Greedy decoding without and with timestamps."""
        end = self.ids["<|endoftext|>"]
        prompts = {"greedy_nots": [*self.start, self.ids["<|notimestamps|>"]]}
        prompts["greedy_ts"] = self.start
        for name, prompt in prompts.items():
            result = found[name]
            arrays[f"{name}_prompt"], arrays[f"{name}_tokens"] = i32(prompt), i32(result["tokens"])
            arrays[f"{name}_step_logits"] = f32(result["raw"][:6])
            text = self.tokenizer.decode([token for token in result["tokens"] if token < end])
            data = text.strip().encode()
            meta[name] = {
                "done": result["done"],
                "min_margin": result["margin"],
                "sum_logprob": result["sum_logprob"],
                "avg_logprob": result["avg_logprob"],
                "text": text,
                "compression_ratio": len(data) / len(zlib.compress(data)),
            }

    def agree(self, found: dict) -> None:
        """Check that transformers' generate() gives the same tokens."""
        end = self.ids["<|endoftext|>"]
        # It keeps seeking inside a short input where timestamps are wanted.
        seeking = long_form(
            self.task(found["upstream"]), self.mel, self.start, self.p["mtp"], False
        )
        wanted = {False: found["greedy_nots"]["tokens"], True: self.window_text(seeking)}
        for timestamps, tokens in wanted.items():
            output = self.generate(found["model"], self.mel, return_timestamps=timestamps)
            output = output if torch.is_tensor(output) else output["sequences"]
            said = output[0].tolist()
            forced = {*self.start, self.ids["<|notimestamps|>"]}
            while said and said[0] in forced:
                said = said[1:]
            said = [token for token in said if (token < end if timestamps else token != end)]
            assert said == tokens, (self.case, timestamps, said, tokens)

    def generate(self, model: WhisperForConditionalGeneration, mel: np.ndarray, **how: Any) -> Any:
        """transformers' whole pipeline."""
        if self.p["multi"]:
            how |= {"language": "de", "task": "transcribe"}
        features = torch.from_numpy(mel)[None]
        return model.generate(
            features, max_new_tokens=self.new, do_sample=False, num_beams=1, **how
        )

    def window_text(self, run: dict) -> list[int]:
        """Text tokens up to each window's last cut: what transformers keeps of it."""
        end, said = self.ids["<|endoftext|>"], []
        for _, _, tokens in run["windows"]:
            places, _ = cuts(tokens, self.ids["<|0.00|>"])
            said += [t for t in tokens[: places[-1] if places else None] if t < end]
        return said

    def own(self, found: dict, arrays: dict, meta: dict) -> None:
        """Beam search and alignment."""
        tokens, total, lead = found["beam"]
        arrays["own_beam_tokens"] = i32(tokens)
        beam, patience = self.p["beam"]
        meta["own_beam"] = {"beam_size": beam, "patience": patience, "length_penalty": None}
        meta["own_beam"] |= {"sum_logprob": total, "rank_gap": lead, "prompt": "greedy_nots_prompt"}
        frames = min(2 * self.p["msp"], len(self.samples[0]) // 160)
        text, encoded = found["greedy_nots"]["tokens"], found["encoded"]["out"]
        aligned = align(self.task(found["upstream"]), encoded, self.start, text, frames)
        arrays |= {f"own_align_{name}": value for name, value in aligned.items()}
        meta["own_align"] = {"num_frames": frames, "text_tokens": "greedy_nots_tokens"}
        meta["own_align"]["seconds_per_frame"] = 0.02

    def long_goldens(self, found: dict, meta: dict) -> None:
        """Segments and windows of the long form, beside transformers' text."""
        mel = self.long_mel
        meta["long_mel"] = {"frames": int(mel.shape[1]), "max": float(mel.max())}
        meta["long_mel"]["sum"] = float(mel.astype(np.float64).sum())
        for name in ("long_nocond", "long_cond"):
            run = found[name]
            meta[f"own_{name}"] = [
                {"start": start, "end": end, "tokens": tokens}
                for start, end, tokens in run["segments"]
            ]
            meta[f"own_{name}_windows"] = [
                {"seek": seek, "prompt": prompt, "tokens": tokens}
                for seek, prompt, tokens in run["windows"]
            ]
            meta[f"own_{name}_margin"] = run["margin"]
        meta["own_long_cond_max_new"] = self.long_new
        output = self.generate(
            found["model"],
            mel,
            attention_mask=torch.ones(1, mel.shape[1], dtype=torch.int64),
            return_timestamps=True,
            return_segments=True,
            condition_on_prev_tokens=False,
        )
        end = self.ids["<|endoftext|>"]
        said = [int(t) for segment in output["segments"][0] for t in segment["tokens"] if t < end]
        meta["hf_long_matches_own_text"] = said == self.window_text(found["long_nocond"])


def f32(value: Any) -> np.ndarray:
    """Contiguous float32."""
    return np.ascontiguousarray(np.asarray(value, np.float32))


def i32(value: Any) -> np.ndarray:
    """Token ids."""
    return np.asarray(value, np.int32)


def write_goldens(folder: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """golden.npz and golden.json."""
    np.savez_compressed(folder / "golden.npz", **arrays)
    meta["arrays"] = {name: [list(a.shape), str(a.dtype)] for name, a in arrays.items()}
    (folder / "golden.json").write_text(json.dumps(meta, indent=1, default=float))
