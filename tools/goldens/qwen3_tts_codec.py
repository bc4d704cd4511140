"""The codec's case: decoder and encoder stage by stage, whole and in chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from qwen3_tts_checkpoint import codec_config, codec_rule, dump, fill, voice
from qwen3_tts_upstream import (
    Qwen3TTSTokenizer,
    Qwen3TTSTokenizerV2Config,
    Qwen3TTSTokenizerV2Model,
    array,
)
from whisper_weights import rng_for

MARGIN = 2e-3  # by which every nearest codeword must be nearer than the next
LONG, PAST = 25, 326  # frames: of a longer decode, and past the chunk of 300 of the public one

Arrays = dict[str, np.ndarray]


def build_codec(z: dict[str, Any], seed: int, folder: Path, trial: int) -> int:
    """Write a codec whose signals are of natural size; samples a frame."""
    config = codec_config(z)
    folder.mkdir(parents=True, exist_ok=True)
    dump(folder / "config.json", config)
    dump(
        folder / "preprocessor_config.json",
        {
            "chunk_length_s": None, "feature_extractor_type": "EncodecFeatureExtractor",
            "feature_size": 1, "overlap": None, "padding_side": "right", "padding_value": 0.0,
            "return_attention_mask": True, "sampling_rate": 24000,
        },
    )  # fmt: skip
    known = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    model = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**known)).eval()
    state = fill(model.state_dict(), seed, f"codec{trial}", codec_rule)
    for name in [name for name in state if name.endswith("cluster_usage")]:
        for other in ("embedding_sum", "embed_sum"):
            sums = name.replace("cluster_usage", other)
            if sums in state:
                state[sums] = state[sums] * state[name].clamp(min=1e-5)[:, None]
    model.load_state_dict(state)
    hop: int = config["decode_upsample_rate"]
    scale_encoder(model.encoder, torch.from_numpy(voice(hop * 30, seed))[None, None])
    scale_decoder(
        model.decoder, rng_for(seed, "scale").integers(0, z["codebook"], (z["groups"], 24))
    )
    tensors = {k: v.contiguous() for k, v in model.state_dict().items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return hop


def scale_encoder(encoder: Any, wav: torch.Tensor) -> None:
    """Latents near unit variance, codebooks that shrink with what is left."""
    last = encoder.encoder.layers[-1].conv
    deviation = encoder.encoder(wav).std()
    last.weight.div_(deviation)
    last.bias.div_(deviation)
    encoder.downsample.conv.weight.div_(latents(encoder, wav).std())
    found = latents(encoder, wav)
    for quantizer in quantizers(encoder):
        rest = quantizer.input_proj(found)
        for layer in quantizer.layers:
            layer.codebook.embed_sum.mul_(0.9 * rest.std())
            layer.codebook._embed = None
            rest = rest - layer.decode(layer.encode(rest))


def latents(encoder: Any, wav: torch.Tensor) -> torch.Tensor:
    """What is quantised."""
    hidden = encoder.encoder(wav).transpose(1, 2)
    hidden = encoder.encoder_transformer(hidden, return_dict=True)[0].transpose(1, 2)
    return encoder.downsample(hidden)


def quantizers(encoder: Any) -> tuple[Any, Any]:
    """The semantic one, the acoustic one."""
    both = encoder.quantizer
    return both.semantic_residual_vector_quantizer, both.acoustic_residual_vector_quantizer


def scale_decoder(decoder: Any, codes: np.ndarray) -> None:
    """Every convolution's output of unit deviation, the waveform's 0.4: some of it is clipped."""
    ids = torch.from_numpy(codes)[None]
    x = decoder.pre_conv(decoder.quantizer.decode(ids)).transpose(1, 2)
    x = decoder.pre_transformer(inputs_embeds=x).last_hidden_state.permute(0, 2, 1)
    stages = [part for pair in decoder.upsample for part in pair] + list(decoder.decoder[:-2])
    for stage in stages:
        for unit in list(stage.block) if hasattr(stage, "block") else [stage]:
            y = unit(x)
            conv = getattr(unit, "conv", None)
            if isinstance(conv, torch.nn.Module):
                gain = 1.0 / (y.std() + 1e-6)
                conv.weight.mul_(gain)
                conv.bias.mul_(gain)
                y = unit(x)
            x = y
    seen: list[torch.Tensor] = []
    hook = decoder.decoder[-1].register_forward_hook(lambda _m, _i, o: seen.append(o))
    decoder(ids)
    hook.remove()
    gain = 0.4 / (seen[0] - seen[0].mean()).std()
    last = decoder.decoder[-1].conv
    last.weight.mul_(gain)
    last.bias.copy_(last.bias - gain * seen[0].mean())


class Taps:
    """What modules give, by name, for as long as it is open."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.hooks: list[Any] = []

    def on(self, module: Any, name: str) -> None:
        """Keep what this module gives."""

        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            found = output[0] if isinstance(output, tuple) else output
            self.arrays[name] = array(getattr(found, "last_hidden_state", found)[0])

        self.hooks.append(module.register_forward_hook(keep))

    def close(self) -> None:
        """Listen no more."""
        for hook in self.hooks:
            hook.remove()


def decoder_arrays(tokenizer: Any, z: dict[str, Any], seed: int, hop: int) -> Arrays:
    """A few frames stage by stage; more of them whole, in chunks, and past the public chunk."""
    d, taps = tokenizer.model.decoder, Taps()
    taps.on(d.pre_conv, "dec_preconv")
    for i, layer in enumerate(d.pre_transformer.layers):
        taps.on(layer, f"dec_tf_layer{i}")
    taps.on(d.pre_transformer, "dec_tf_out")
    for i, (up, block) in enumerate(d.upsample):
        taps.on(up, f"dec_up{i}_transconv")
        taps.on(block, f"dec_up{i}_convnext")
    for i, stage in enumerate(d.decoder):
        taps.on(stage, f"dec_wave{i}")
    groups, entries = z["groups"], z["codebook"]
    rng, found = rng_for(seed, "codes"), {}
    codes = rng.integers(0, entries, (5, groups))
    codes[1, 0] = codes[2, groups - 1] = codes[3, 1] = 3  # the row that was never used
    ids = torch.from_numpy(codes).T[None]
    found["dec_codes"], found["dec_quantized"] = codes, array(d.quantizer.decode(ids)[0])
    found["dec_wav"] = array(d(ids)[0, 0])
    found.update(taps.arrays)
    codes = rng.integers(0, entries, (LONG, groups))
    ids = torch.from_numpy(codes).T[None]
    found["long_codes"], found["long_wav_whole"] = codes, array(d(ids)[0, 0])
    found["long_tf_out"] = taps.arrays["dec_tf_out"]
    chunked = d.chunked_decode(ids, chunk_size=7, left_context_size=3)
    found["long_wav_chunk7_ctx3"] = array(chunked[0, 0])
    found["long_wav_api"] = tokenizer.decode([{"audio_codes": codes}])[0][0]
    taps.close()
    codes = rng.integers(0, entries, (PAST, groups))
    wav = tokenizer.decode([{"audio_codes": codes}])[0][0]
    seam = 300 * hop
    found["xl_codes"], found["xl_wav_seam"] = codes, wav[max(0, seam - 1500) : seam + 3000]
    found["xl_wav_every37"] = np.ascontiguousarray(wav[::37])
    return found


def encoder_arrays(tokenizer: Any, z: dict[str, Any], seed: int, hop: int) -> tuple[Arrays, float]:
    """Codes of three lengths, one of them stage by stage; the smallest gap to a second codeword."""
    e, groups, found, smallest = tokenizer.model.encoder, z["groups"], {}, np.inf
    lengths = {"enc": hop * 7 + hop // 3 + 1, "encshort": max(hop // 4, 30), "encexact": hop * 3}
    for name, count in lengths.items():
        wav, taps = voice(count, seed + 5, 190.0), Taps()
        if name == "enc":
            taps.on(e.encoder, "enc_seanet")
            for i, layer in enumerate(e.encoder.layers):
                if not isinstance(layer, torch.nn.ELU):
                    taps.on(layer, f"enc_conv{i}")
            for i, layer in enumerate(e.encoder_transformer.layers):
                taps.on(layer, f"enc_tf_layer{i}")
            taps.on(e.downsample, "enc_latent")
        codes = tokenizer.encode(wav, sr=24000).audio_codes[0].numpy()
        taps.close()
        found.update(taps.arrays)
        gaps = codeword_gaps(e, torch.from_numpy(wav)[None, None], groups)
        smallest = min(smallest, float(gaps.min()))
        found |= {f"{name}_wav": wav, f"{name}_codes": codes, f"{name}_gap": gaps}
    return found, smallest


def codeword_gaps(encoder: Any, wav: torch.Tensor, groups: int) -> np.ndarray:
    """How much nearer each codeword is than the next, [frames, groups]."""
    found, gaps = latents(encoder, wav), []
    for quantizer, count in zip(quantizers(encoder), (1, groups - 1), strict=True):
        rest = quantizer.input_proj(found)
        for layer in quantizer.layers[:count]:
            distances = torch.cdist(rest[0].T[None], layer.codebook.embed[None])[0]
            two = torch.topk(distances, 2, largest=False).values
            gaps.append(array(two[:, 1] - two[:, 0]))
            rest = rest - layer.decode(layer.encode(rest))
    return np.stack(gaps, 1)


def codec_case(
    z: dict[str, Any], seed: int, case: Path, save: Callable[[Path, Arrays, dict[str, Any]], None]
) -> int:
    """The case in a folder; samples a frame. Trials until no codeword is near to a tie."""
    for trial in range(50):
        hop = build_codec(z, seed, case / "ckpt", trial)
        tokenizer = Qwen3TTSTokenizer.from_pretrained(str(case / "ckpt"))
        arrays, margin = encoder_arrays(tokenizer, z, seed, hop)
        if margin > MARGIN:
            break
    arrays |= decoder_arrays(tokenizer, z, seed, hop)
    save(
        case,
        arrays,
        {
            "kind": "speech tokenizer only", "trial": trial, "samples_per_frame": hop,
            "smallest_codeword_distance_gap": margin, "config": z,
            "note": "dec_* arrays are for dec_codes [frames, groups]; stages are [channels, time], "
            "but dec_tf_* and enc_tf_* [frames, hidden]",
        },
    )  # fmt: skip
    return hop
