#!/usr/bin/env python3
"""Small random Qwen3-TTS checkpoints with what the official classes make of them (greedy, float32).

Usage: qwen3_tts.py --out DIR [--seed 0] [--size mini|tiny|odd] [--cases NAME,...]

Needs what qwen3_tts_upstream.py says. Everything is drawn from NumPy generators keyed by seed and
tensor, and torch runs on one thread, so a set can be made again.

DIR/<case>/ckpt/         a checkpoint in the published layout (talker bfloat16, codec float32)
DIR/<case>/expected.npz  arrays; DIR/<case>/meta.json  sizes, runs, smallest leads, versions
Cases: codec, custom_voice, voice_design, base, sampler, text. `mini` is what is committed; `tiny`
keeps the released codec's rates; `odd` draws sizes from the seed, heads of 6 and 10 among them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from qwen3_tts_checkpoint import codec_config, voice
from qwen3_tts_codec import codec_case
from qwen3_tts_talker import speaker_arrays, talker_case
from qwen3_tts_upstream import VERSIONS, array
from transformers import AutoTokenizer
from transformers.generation import logits_process
from whisper import write_manifest
from whisper_weights import rng_for

TEXTS = (
    "Hello there, how are you?",
    "I'll SPEAK slowly; you're eBay's CamelCase user 2024!",
    "  two  spaces\nnew\n\nlines \n",
    "你好，世界。日本語 한국어",
    "naïve cafe\u0301 Å ﬁ",
    "emoji 🙂🚀 x²≤3.14/7//a",
    "tab\there\r\nend",
    "<|im_start|>user\nhi<|im_end|>",
    "the assistant's voice isn't speaking",
    "",
    " ",
    "\n",
    "A/B\n/C ...?!\n",
)
CUSTOM_RUNS = (
    {"run": "instruct", "text": "Hello there, how are you?", "speaker": "Serena",
     "language": "English", "instruct": "Speak slowly.", "max_new_tokens": 13},
    {"run": "dialect_stream", "text": "the user speaks 42", "speaker": "eric", "language": "Auto",
     "non_streaming_mode": False, "max_new_tokens": 11},
    {"run": "auto", "text": "你好 voice", "speaker": "ryan", "language": None, "instruct": "",
     "max_new_tokens": 9, "repetition_penalty": 1.4},
)  # fmt: skip
DESIGN_RUNS = (
    {"run": "design", "text": "Hello you", "language": "Chinese", "instruct": "a slow, low voice",
     "max_new_tokens": 12},
    {"run": "plain_stream", "text": "speaking now.", "language": "auto", "instruct": "",
     "non_streaming_mode": False, "max_new_tokens": 8, "repetition_penalty": 1.0},
)  # fmt: skip
BASE_RUNS = (
    {"run": "xvec", "text": "Hello there you", "language": "English", "max_new_tokens": 9},
    {"run": "xvec_full", "text": "Hello", "language": "Auto", "non_streaming_mode": True,
     "max_new_tokens": 7},
    {"run": "icl_text_longer", "language": "German", "max_new_tokens": 10,
     "text": "the voice of the user is speaking to you now, slowly and clearly",
     "ref_text": "a slow reference text for the voice"},
    {"run": "icl_text_shorter", "text": "Hi", "language": "Auto", "ref_text": "ok",
     "max_new_tokens": 8},
    {"run": "icl_full", "text": "Hello you", "language": "English", "ref_text": "the voice",
     "non_streaming_mode": True, "max_new_tokens": 8},
)  # fmt: skip
#: Penalty, temperature, top_k, top_p, length of the history.
SAMPLER = (
    (1.05, 0.9, 50, 1.0, 7), (1.05, 0.9, 50, 1.0, 0), (1.3, 0.7, 20, 0.8, 12),
    (1.0, 1.0, 0, 0.95, 3), (1.05, 0.9, 1, 1.0, 4), (1.2, 1.4, 2000, 0.5, 1),
)  # fmt: skip

Sizes = dict[str, Any]


def draw_sizes(seed: int, size: str) -> dict[str, Sizes]:
    """Of codec and talkers."""
    if size == "odd":
        return odd_sizes(seed)
    mini = size == "mini"
    codec = {
        "groups": 6 if mini else 16, "codebook": 32 if mini else 64, "enc_q": 8 if mini else 20,
        "latent": 24 if mini else 32, "cdim": 24 if mini else 32, "hid": 20 if mini else 24,
        "hd": 8, "heads": 4, "kv": 4, "inter": 36 if mini else 48, "layers": 2,
        "win": 9 if mini else 20, "ddim": 32 if mini else 64, "vq": 12 if mini else 16,
        "rates": [4, 3, 2] if mini else [8, 5, 4, 3], "ratios": [2, 2], "filters": 4,
        "ehid": 24 if mini else 32, "eheads": 4, "ekv": 2 if mini else 4, "ehd": 8,
        "einter": 40 if mini else 64, "elayers": 2, "eratios": [4, 4, 3] if mini else [8, 6, 5, 4],
    }  # fmt: skip
    custom = {"H": 48, "L": 3, "heads": 4, "kv": 2, "hd": 16, "inter": 64, "TH": 40, "size": "1b7",
              "cp": {"H": 40, "L": 2, "heads": 4, "kv": 2, "hd": 16, "inter": 48}}  # fmt: skip
    design = {"H": 40, "L": 2, "heads": 6, "kv": 2, "hd": 8, "inter": 56, "TH": 48, "size": "1b7",
              "cp": {"H": 48, "L": 3, "heads": 4, "kv": 1, "hd": 16, "inter": 56}}  # fmt: skip
    base = {"H": 40, "L": 3, "heads": 4, "kv": 1, "hd": 16, "inter": 56, "TH": 40, "size": "0b6",
            "cp": {"H": 40, "L": 2, "heads": 4, "kv": 2, "hd": 16, "inter": 48},
            "spk": {"ch": [16, 16, 16, 16, 48], "ks": [5, 3, 3, 3, 1], "dil": [1, 2, 3, 4, 1],
                    "att": 12, "scale": 8, "se": 8}}  # fmt: skip
    return {"codec": codec, "custom_voice": custom, "voice_design": design, "base": base}


def odd_sizes(seed: int) -> dict[str, Sizes]:
    """Anything that a loader must read from the configuration."""
    rng = rng_for(seed, "sizes")

    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    rates, ratios, eratios = pick(
        ([4, 3, 2], [2, 2], [4, 4, 3]),
        ([5, 3, 2], [2, 2], [5, 4, 3]),
        ([6, 2, 2], [3, 2], [6, 4, 3]),
    )
    codec = {
        "groups": pick(6, 8, 12), "codebook": pick(32, 128), "enc_q": pick(13, 15),
        "latent": pick(24, 40), "cdim": pick(24, 40), "hid": pick(20, 28), "hd": pick(6, 10),
        "heads": pick(4, 6), "kv": 2, "inter": pick(36, 52), "layers": pick(2, 3),
        "win": pick(17, 19, 21), "ddim": pick(48, 80), "rates": rates, "ratios": ratios,
        "filters": pick(3, 5), "ehid": pick(24, 40), "eheads": 4, "ekv": pick(2, 4),
        "ehd": pick(6, 10), "einter": pick(56, 72), "elayers": pick(1, 3), "eratios": eratios,
        "vq": pick(12, 20),
    }  # fmt: skip

    def talker(size: str, project: bool) -> Sizes:
        width, (heads, kv) = pick(72, 88, 104), pick((2, 1), (6, 3), (8, 2), (3, 3))
        own_heads, own_kv = pick((2, 2), (6, 2), (4, 1))
        return {
            "H": width, "L": pick(2, 3, 5), "heads": heads, "kv": kv, "hd": pick(16, 32, 64),
            "inter": pick(104, 136), "TH": pick(40, 56), "size": size,
            "cp": {
                "H": pick(40, 56) if project else width, "L": pick(1, 2, 3), "heads": own_heads,
                "kv": own_kv, "hd": pick(16, 24), "inter": pick(72, 88),
            },
        }  # fmt: skip

    custom, design, base = talker("1b7", True), talker("1b7", True), talker("0b6", False)
    width = pick(24, 32)
    base["spk"] = {
        "ch": [width, width, width, 2 * width], "ks": [5, 3, 3, 1],
        "dil": [1, pick(2, 3), pick(3, 4), 1], "att": pick(10, 20), "scale": pick(4, 8),
        "se": pick(6, 10),
    }  # fmt: skip
    return {"codec": codec, "custom_voice": custom, "voice_design": design, "base": base}


def runs(kind: str, references: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """The public calls of a case."""
    table = {"custom_voice": CUSTOM_RUNS, "voice_design": DESIGN_RUNS, "base": BASE_RUNS}[kind]
    specs = [{"mode": kind, "repetition_penalty": 1.05} | spec for spec in table]
    if kind == "base":
        for spec in specs:
            spec["x_vector_only_mode"] = "ref_text" not in spec
            spec["ref_wav"] = references["long" if spec["run"] == "icl_text_shorter" else "short"]
    return specs


def sampler_arrays(seed: int, vocabulary: int, eos: int) -> tuple[dict[str, Any], list[Any]]:
    """Logits, and the distribution that transformers' processors leave of them."""
    rng, found, meta = rng_for(seed, "sampler"), {}, []
    first = vocabulary - 1024
    for i, (penalty, temperature, top_k, top_p, length) in enumerate(SAMPLER):
        logits = (3 * rng.standard_normal(vocabulary)).astype(np.float32)
        if i == 0:  # a tie across the border of top_k: all of it stays
            rank = np.argsort(-logits[:first])
            border = min(50, first - 1)
            logits[rank[border - 10 : border + 10]] = logits[rank[border]]
        history = rng.integers(0, first, length)
        scores, past = torch.from_numpy(logits)[None], torch.from_numpy(history)[None]
        steps = logits_process.LogitsProcessorList()
        if penalty != 1.0:
            steps.append(logits_process.RepetitionPenaltyLogitsProcessor(penalty))
        steps.append(logits_process.MinNewTokensLengthLogitsProcessor(0, 2, eos))
        never = [j for j in range(first, vocabulary) if j != eos]
        steps.append(logits_process.SuppressTokensLogitsProcessor(never))
        greedy = steps(past, scores.clone())
        if temperature != 1.0:
            steps.append(logits_process.TemperatureLogitsWarper(temperature))
        if top_k:
            steps.append(logits_process.TopKLogitsWarper(top_k))
        if top_p < 1.0:
            steps.append(logits_process.TopPLogitsWarper(top_p))
        found |= {f"s{i}/logits": logits, f"s{i}/history": history}
        found[f"s{i}/probs"] = array(steps(past, scores.clone()).softmax(-1)[0])
        found[f"s{i}/greedy"] = np.array(int(greedy.argmax()))
        meta.append(
            {"repetition_penalty": penalty, "temperature": temperature, "top_k": top_k,
             "top_p": top_p, "vocab": vocabulary, "eos": eos, "min_new_tokens": 2}
        )  # fmt: skip
    return found, meta


def save(case: Path, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """expected.npz and meta.json."""
    case.mkdir(parents=True, exist_ok=True)
    kept = {}
    for name, value in arrays.items():
        value = np.asarray(value)
        kept[name] = value.astype(np.float32 if value.dtype.kind == "f" else np.int64)
        if not np.isfinite(kept[name]).all():
            raise RuntimeError(f"{case.name}: {name} is not finite")
    np.savez_compressed(case / "expected.npz", **kept)
    text = json.dumps(meta | {"versions": VERSIONS}, indent=1, ensure_ascii=False, default=float)
    (case / "meta.json").write_text(text + "\n", "utf-8")
    print(f"{case.name}: {len(kept)} arrays", flush=True)


def build(sizes: dict[str, Sizes], seed: int, out: Path, wanted: set[str]) -> None:
    """The cases wanted; the codec always, as the others hold it."""
    z = sizes["codec"]
    hop = codec_case(z, seed, out / "codec", save)
    least = 2100  # samples: the mel needs five frames
    short = voice(hop * 4 + hop // 2 + (least if hop * 4 < least else 0), seed + 1)
    references = {"short": short, "long": voice(hop * (40 if hop < 500 else 24), seed + 2, 110.0)}
    if len(references["long"]) < least:
        references["long"] = voice(least + hop, seed + 2, 110.0)
    for kind in ("custom_voice", "voice_design", "base"):
        if kind not in wanted:
            continue
        stop = 10 if kind == "custom_voice" else None
        case, specs = out / kind, runs(kind, references)
        model, arrays, meta = talker_case(sizes[kind], kind, seed, case, z, specs, stop)
        if kind == "base":
            heard = {"a": voice(256 * 20 + 100, seed + 3), "b": voice(2100, seed + 4, 220.0)}
            arrays |= speaker_arrays(model, heard)
            arrays |= {f"ref_wav_{name}": wave for name, wave in references.items()}
        save(case, arrays, meta)
    entries = codec_config(z)["decoder_config"]["codebook_size"]
    if "sampler" in wanted:
        arrays, cases = sampler_arrays(seed, entries + 1024, entries + 102)
        note = "history: first codes chosen so far; top_k 0: off"
        save(out / "sampler", arrays, {"cases": cases, "note": note})
    if "text" in wanted and (out / "custom_voice" / "ckpt").is_dir():
        write_text_case(out / "text", out / "custom_voice" / "ckpt")


def write_text_case(case: Path, source: Path) -> None:
    """Ids of the tokenizer as shipped, control tokens parsed."""
    (case / "ckpt").mkdir(parents=True, exist_ok=True)
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(source / name, case / "ckpt" / name)
    tokenizer = AutoTokenizer.from_pretrained(str(source))
    arrays = {f"t{i}/ids": np.array(tokenizer(t)["input_ids"]) for i, t in enumerate(TEXTS)}
    save(case, arrays, {"texts": list(TEXTS)})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("mini", "tiny", "odd"), default="mini")
    parser.add_argument("--cases", default="custom_voice,voice_design,base,sampler,text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    sizes = draw_sizes(options.seed, options.size)
    build(sizes, options.seed, options.out, set(options.cases.split(",")))
    write_manifest(options.out, options.seed, options.size)


if __name__ == "__main__":
    main()
