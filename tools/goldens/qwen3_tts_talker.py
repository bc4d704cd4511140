"""Talker cases: greedy runs of the official model's public calls, stage by stage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from qwen3_tts_checkpoint import (
    GENERATION,
    dump,
    fill,
    talker_config,
    talker_rule,
    write_tokenizer,
)
from qwen3_tts_upstream import (
    Qwen3TTSConfig,
    Qwen3TTSForConditionalGeneration,
    Qwen3TTSModel,
    array,
    librosa,
    mel_spectrogram,
)

GAP = 2e-3  # by which every greedy choice must be ahead of the next
TRIALS = 60

Arrays = dict[str, np.ndarray]


def write_checkpoint(
    t: dict[str, Any], kind: str, seed: int, folder: Path, z: dict[str, Any], trial: int
) -> dict[str, Any]:
    """A folder as released, but for the codec; its configuration."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ids, assistant, count = write_tokenizer(folder)
    config = talker_config(t, kind, ids, assistant, (count + 7) // 8 * 8, z)
    dump(folder / "config.json", config)
    dump(folder / "generation_config.json", GENERATION)
    shutil.copytree(folder.parent.parent / "codec" / "ckpt", folder / "speech_tokenizer")
    known = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    model = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**json.loads(json.dumps(known))))
    state = fill(model.state_dict(), seed, f"{kind}{trial}", talker_rule)
    tensors = {name: values.to(torch.bfloat16) for name, values in state.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return config


def load(folder: Path) -> Any:
    """The official model in float32."""
    return Qwen3TTSModel.from_pretrained(
        str(folder), dtype=torch.float32, attn_implementation="eager"
    )


class Recording:
    """What one generation of the official model computes on the way."""

    def __init__(self, model: Any) -> None:
        self.model, talker = model, model.model.talker
        predictor = talker.code_predictor
        self.layers: list[np.ndarray] = []
        self.normed: list[np.ndarray] = []
        self.logits: list[np.ndarray] = []
        self.inputs: list[np.ndarray] = []
        self.predicted: list[np.ndarray] = []
        self.predictor_inputs: list[np.ndarray] = []
        self.predictor_normed: list[np.ndarray] = []
        self.generating: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.codes = np.zeros(0)
        self.hooks: list[Any] = []
        for layer in talker.model.layers:
            self.on(layer, self.layers, lambda output: output[0][0])
        self.on(talker.model.norm, self.normed, lambda output: output[0])
        self.on(talker.codec_head, self.logits, lambda output: output[0, -1])
        self.before(talker.model, self.inputs)
        for head in predictor.lm_head:
            self.on(head, self.predicted, lambda output: output[0, -1])
        self.before(predictor.model, self.predictor_inputs)
        self.on(predictor.model.norm, self.predictor_normed, lambda output: output[0])
        self.talker_generate, self.outer_generate = talker.generate, model.model.generate

        def generate(**options: Any) -> Any:
            self.generating = options
            return self.talker_generate(**options)

        def outer(**options: Any) -> Any:
            self.asked = options
            result = self.outer_generate(**options)
            self.codes = result[0][0].numpy()
            return result

        talker.generate, model.model.generate = generate, outer

    def on(self, module: Any, into: list[np.ndarray], part: Callable[[Any], torch.Tensor]) -> None:
        """Keep a part of what a module gives."""
        self.hooks.append(
            module.register_forward_hook(lambda _m, _i, o: into.append(array(part(o))))
        )

    def before(self, module: Any, into: list[np.ndarray]) -> None:
        """Keep what a module is given."""

        def keep(_module: Any, _inputs: Any, options: dict[str, Any]) -> None:
            into.append(array(options["inputs_embeds"][0]))

        self.hooks.append(module.register_forward_pre_hook(keep, with_kwargs=True))

    def close(self) -> None:
        """Put the model back as it was."""
        for hook in self.hooks:
            hook.remove()
        self.model.model.talker.generate = self.talker_generate
        self.model.model.generate = self.outer_generate


def processed(
    raw: np.ndarray, history: list[int], penalty: float, config: dict[str, Any], least: int = 2
) -> np.ndarray:
    """Logits as greedy decoding sees them."""
    eos, first = config["codec_eos_token_id"], config["vocab_size"] - 1024
    scores = raw.astype(np.float32).copy()
    for i in set(history):
        factor = np.float32(penalty)
        scores[i] = scores[i] * factor if scores[i] < 0 else scores[i] / factor
    if len(history) < least:
        scores[eos] = -np.inf
    kept = scores[eos]
    scores[first:] = -np.inf
    scores[eos] = kept
    return scores


def call(model: Any, spec: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """One public call; the wave, and of a clone the reference as the model has it."""
    options = {
        "do_sample": False, "subtalker_dosample": False, "max_new_tokens": spec["max_new_tokens"],
        "repetition_penalty": spec["repetition_penalty"], "text": spec["text"],
        "language": spec["language"],
    }  # fmt: skip
    if "non_streaming_mode" in spec:
        options["non_streaming_mode"] = spec["non_streaming_mode"]
    if spec["mode"] == "custom_voice":
        waves, _ = model.generate_custom_voice(
            speaker=spec["speaker"], instruct=spec.get("instruct"), **options
        )
    elif spec["mode"] == "voice_design":
        waves, _ = model.generate_voice_design(instruct=spec["instruct"], **options)
    else:
        items = model.create_voice_clone_prompt(
            ref_audio=(spec["ref_wav"], 24000),
            ref_text=spec.get("ref_text"),
            x_vector_only_mode=spec["x_vector_only_mode"],
        )
        waves, _ = model.generate_voice_clone(voice_clone_prompt=items, **options)
        return waves[0], items[0]
    return waves[0], None


def run(model: Any, config: dict[str, Any], spec: dict[str, Any]) -> tuple[Arrays, float]:
    """Everything of one call, and the smallest lead of a greedy choice."""
    record = Recording(model)
    try:
        wave, reference = call(model, spec)
    finally:
        record.close()
    talker = config["talker_config"]
    groups, count = talker["num_code_groups"], len(record.logits) - 1
    found: Arrays = {"input_ids": record.asked["input_ids"][0][0].numpy()}
    for name in ("instruct_ids", "ref_ids"):
        if (ids := (record.asked.get(name) or [None])[0]) is not None:
            found[name] = ids[0].numpy()
    found["prompt_embeds"] = array(record.generating["inputs_embeds"][0])
    found["trailing_text_hidden"] = array(record.generating["trailing_text_hidden"][0])
    found["tts_pad_embed"] = array(record.generating["tts_pad_embed"][0, 0])
    found["prefill_layers"] = np.stack(record.layers[: talker["num_hidden_layers"]])
    found["prefill_hidden"] = record.normed[0]
    found["logits0"] = np.stack(record.logits)
    empty = np.zeros((0, talker["hidden_size"]), np.float32)
    found["step_embeds"] = np.concatenate([empty, *record.inputs[1:]])
    found["step_hidden"] = np.concatenate([empty, *record.normed[1:]])
    found["codes"] = record.codes
    if count:
        found["cp_logits_frame0"] = np.stack(record.predicted[: groups - 1])
        found["cp_inputs_frame0"] = np.concatenate(record.predictor_inputs[: groups - 1])
        found["cp_hidden_frame0"] = np.concatenate(record.predictor_normed[: groups - 1])
    leads, history = [], []
    for raw in record.logits:
        scores = processed(raw, history, spec["repetition_penalty"], talker)
        leads.append(lead(scores))
        history.append(int(scores.argmax()))
    if history[:count] != record.codes[:, 0].tolist():
        raise RuntimeError(f"{spec['run']}: the order of the rules is not the official one")
    found["tokens0"] = np.array(history)
    found["stopped_at_eos"] = np.array(int(history[-1] == talker["codec_eos_token_id"]))
    if reference is not None:
        found["speaker_embedding"] = array(reference.ref_spk_embedding)
        if reference.ref_code is not None:
            found["ref_codes"] = reference.ref_code.numpy()
    found["wav"] = wave
    return found, min([*leads, *map(lead, record.predicted)])


def lead(scores: np.ndarray) -> float:
    """Of the best over the next."""
    best = np.sort(scores)[::-1]
    return float(best[0] - best[1])


def plant_end(
    folder: Path,
    model: Any,
    config: dict[str, Any],
    specs: list[dict[str, Any]],
    stop: int,
) -> None:
    """Rewrite the end's row of the head so that run 0 stops after `stop` frames and would, without
    min_new_tokens, stop at once; other runs keep clear of the end."""
    talker, rows, targets = config["talker_config"], [], []
    for i, spec in enumerate(specs):
        found, _ = run(model, config, spec)
        hidden = np.concatenate([found["prefill_hidden"][-1:], found["step_hidden"]])
        for j, row in enumerate(hidden):
            if i == 0 and j > stop:
                break
            history = found["tokens0"][:j].tolist()
            scores = processed(found["logits0"][j], history, spec["repetition_penalty"], talker, 0)
            scores[talker["codec_eos_token_id"]] = -np.inf
            rows.append(row)
            wanted = i == 0 and j in (0, 1, stop)
            targets.append(scores.max() + (4.0 if wanted else -5.0))
    a, b = np.array(rows, np.float64), np.array(targets, np.float64)
    solved = a.T @ np.linalg.solve(a @ a.T + 1e-3 * np.eye(len(a)), b)
    state = safetensors.torch.load_file(folder / "model.safetensors")
    row = torch.from_numpy(solved.astype(np.float32)).to(torch.bfloat16)
    state["talker.codec_head.weight"][talker["codec_eos_token_id"]] = row
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def talker_case(
    t: dict[str, Any],
    kind: str,
    seed: int,
    case: Path,
    z: dict[str, Any],
    specs: list[dict[str, Any]],
    stop: int | None,
) -> tuple[Any, Arrays, dict[str, Any]]:
    """The official model, arrays of all runs, and what meta.json says. Trials until no choice is
    near to a tie and no run is dull."""
    folder = case / "ckpt"
    shutil.rmtree(case, ignore_errors=True)
    for trial in range(TRIALS):
        config = write_checkpoint(t, kind, seed, folder, z, trial)
        model = load(folder)
        if stop is not None:
            plant_end(folder, model, config, specs, stop)
            model = load(folder)
        arrays: Arrays = {}
        gaps: dict[str, float] = {}
        good = True
        for spec in specs:
            found, gap = run(model, config, spec)
            gaps[spec["run"]] = gap
            arrays |= {f"{spec['run']}/{name}": value for name, value in found.items()}
            first = found["codes"][:, 0].tolist()
            good &= len(first) >= 4 and len(set(first)) >= 4 and gap > GAP
        if stop is not None:
            name = specs[0]["run"]
            good &= len(arrays[f"{name}/codes"]) == stop and bool(arrays[f"{name}/stopped_at_eos"])
        if good:
            runs = [{k: v for k, v in spec.items() if k != "ref_wav"} for spec in specs]
            about = "greedy; ids from vocab-1024 on suppressed but for the end; min_new_tokens 2"
            meta = {"kind": kind, "trial": trial, "smallest_greedy_gap": gaps, "sizes": t}
            return model, arrays, meta | {"runs": runs, "decoding": about}
    raise RuntimeError(f"{case.name}: no trial of {TRIALS} is clear of ties: {gaps}")


def speaker_arrays(model: Any, waves: dict[str, np.ndarray]) -> Arrays:
    """The speaker encoder, stage by stage, for recordings by name."""
    encoder, found = model.model.speaker_encoder, {}
    for tag, wave in waves.items():
        record: Arrays = {}
        hooks = []

        def keep(name: str, into: Arrays = record) -> Any:
            return lambda _m, _i, o: into.__setitem__(
                name, array(o[0]).squeeze(-1) if name == "pooled" else array(o[0])
            )

        for i, block in enumerate(encoder.blocks):
            hooks.append(block.register_forward_hook(keep(f"block{i}")))
        hooks.append(encoder.mfa.register_forward_hook(keep("mfa")))
        hooks.append(encoder.asp.register_forward_hook(keep("pooled")))
        mel = mel_spectrogram(
            torch.from_numpy(wave)[None], n_fft=1024, num_mels=128, sampling_rate=24000,
            hop_size=256, win_size=1024, fmin=0, fmax=12000,
        )  # fmt: skip
        vector = model.model.extract_speaker_embedding(wave, 24000)
        for hook in hooks:
            hook.remove()
        record |= {"wav": wave, "mel": array(mel[0].T), "embedding": array(vector)}
        found |= {f"spk_{tag}/{name}": value for name, value in record.items()}
    bank = librosa.filters.mel(sr=24000, n_fft=1024, n_mels=128, fmin=0, fmax=12000)
    return found | {"mel_filterbank": bank.astype(np.float32)}
