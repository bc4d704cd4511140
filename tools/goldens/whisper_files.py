"""One Whisper in the file formats of other programs, and what each file's weights are worth.

Every writer takes a state dict under Hugging Face's names (float32 NumPy arrays) and returns it as
a reader should find it: rounded or quantised as the file stores it.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

State = dict[str, np.ndarray]

OPENAI_NAMES = (
    ("model.", ""),
    ("encoder.layer_norm.", "encoder.ln_post."),
    ("decoder.layer_norm.", "decoder.ln."),
    (".layers.", ".blocks."),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn", "attn"),
    ("encoder_attn", "cross_attn"),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    ("embed_tokens.weight", "token_embedding.weight"),
    ("embed_positions.weight", "positional_embedding"),
)
POSITIONS = "model.encoder.embed_positions.weight"
EMBEDDING = "model.decoder.embed_tokens.weight"


def openai_name(name: str) -> str:
    """The name of a tensor in openai/whisper."""
    for old, new in OPENAI_NAMES:
        name = name.replace(old, new)
    return name


def halved(state: State) -> State:
    """Every value rounded to float16."""
    return {name: value.astype(np.float16).astype(np.float32) for name, value in state.items()}


# -- whisper.cpp ----------------------------------------------------------------------------------

GGML_FTYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9}
GGML_TYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8}
GGML_SIZES = (
    "n_vocab n_audio_ctx n_audio_state n_audio_head n_audio_layer n_text_ctx n_text_state "
    "n_text_head n_text_layer n_mels"
).split()


def ggml_blocks(values: np.ndarray, kind: str) -> tuple[bytes, np.ndarray]:
    """Rows in blocks of 32: their bytes, and their values again. ggml/src/ggml-quants.c."""
    x = values.reshape(-1, 32).astype(np.float32)
    if kind == "q8_0":
        scale = (np.abs(x).max(1) / 127).astype(np.float16)
        steps = scale.astype(np.float32)[:, None]
        inverse = np.divide(1, steps, out=np.zeros_like(steps), where=steps > 0)
        q = np.clip(np.rint(x * inverse), -127, 127).astype(np.int8)
        rows = [scale[i].tobytes() + q[i].tobytes() for i in range(len(x))]
        return b"".join(rows), (steps * q).reshape(values.shape)
    bits = int(kind[1])
    top, middle = 2**bits - 1, 2 ** (bits - 1)
    if kind.endswith("_0"):
        largest = x[np.arange(len(x)), np.abs(x).argmax(1)]
        scale = (largest / -middle).astype(np.float16)
        steps, low, shift = scale.astype(np.float32)[:, None], np.float32(0), middle
        heads = [scale[i].tobytes() for i in range(len(x))]
    else:
        least, scale = x.min(1).astype(np.float16), ((x.max(1) - x.min(1)) / top).astype(np.float16)
        steps, low = scale.astype(np.float32)[:, None], least.astype(np.float32)[:, None]
        shift = 0
        heads = [scale[i].tobytes() + least[i].tobytes() for i in range(len(x))]
    quotient = np.divide(x - low, steps, out=np.zeros_like(x), where=steps != 0)
    q = np.clip(np.floor(quotient + shift + 0.5), 0, top).astype(np.int64)
    if bits == 5:
        fifth = ((q >> 4) << np.arange(32)).sum(1)
        heads = [h + struct.pack("<I", int(bit)) for h, bit in zip(heads, fifth, strict=True)]
    nibbles = ((q[:, :16] & 15) | ((q[:, 16:] & 15) << 4)).astype(np.uint8)
    back = ((q - shift) * steps + low).astype(np.float32)
    packed = b"".join(head + nibbles[i].tobytes() for i, head in enumerate(heads))
    return packed, back.reshape(values.shape)


def write_ggml(
    path: Path, sizes: dict[str, int], bank: np.ndarray, words: list[bytes], state: State
) -> State:
    """whisper.cpp models/convert-pt-to-ggml.py and examples/quantize; the kind is in the name."""
    kind = path.stem.split("-")[1]
    found = {}
    with path.open("wb") as file:
        ftype = GGML_FTYPE[kind] + (2000 if kind[0] == "q" else 0)
        file.write(struct.pack("<i", 0x67676D6C))
        file.write(struct.pack("<11i", *[sizes[name] for name in GGML_SIZES], ftype))
        file.write(struct.pack("<2i", *bank.shape) + bank.astype("<f4").tobytes())
        file.write(struct.pack("<i", len(words)))
        file.writelines(struct.pack("<i", len(word)) + word for word in words)
        for hugging, value in state.items():
            name = openai_name(hugging)
            stored = value.reshape(-1, 1) if name.endswith(("conv1.bias", "conv2.bias")) else value
            vector = stored.ndim < 2 or stored.shape[1] == 1 or "positional" in name
            as_kind = "f32" if kind == "f32" or vector else kind
            if as_kind[0] == "q" and stored.ndim != 2:
                as_kind = "f16"
            if as_kind == "f32":
                raw, back = stored.astype("<f4").tobytes(), stored
            elif as_kind == "f16":
                raw = stored.astype("<f2").tobytes()
                back = stored.astype(np.float16).astype(np.float32)
            else:
                raw, back = ggml_blocks(stored, as_kind)
            file.write(struct.pack("<3i", stored.ndim, len(name), GGML_TYPE[as_kind]))
            file.write(struct.pack(f"<{stored.ndim}i", *stored.shape[::-1]) + name.encode() + raw)
            found[hugging] = back.reshape(value.shape)
    return found


# -- CTranslate2 ----------------------------------------------------------------------------------

CT2_TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}


def ct2_sources(sizes: dict[str, int]) -> dict[str, list[str]]:
    """Each variable and the tensors whose rows it holds, both without `weight` or `bias`."""
    made: dict[str, list[str]] = {}
    for side, layers in (("encoder", sizes["n_audio_layer"]), ("decoder", sizes["n_text_layer"])):
        for i in range(layers):
            at, of = f"{side}/layer_{i}", f"model.{side}.layers.{i}"
            made[f"{at}/self_attention/linear_0"] = [f"{of}.self_attn.{x}_proj" for x in "qkv"]
            made[f"{at}/self_attention/linear_1"] = [f"{of}.self_attn.out_proj"]
            made[f"{at}/self_attention/layer_norm"] = [f"{of}.self_attn_layer_norm"]
            if side == "decoder":
                made[f"{at}/attention/linear_0"] = [f"{of}.encoder_attn.q_proj"]
                made[f"{at}/attention/linear_1"] = [f"{of}.encoder_attn.{x}_proj" for x in "kv"]
                made[f"{at}/attention/linear_2"] = [f"{of}.encoder_attn.out_proj"]
                made[f"{at}/attention/layer_norm"] = [f"{of}.encoder_attn_layer_norm"]
            made[f"{at}/ffn/linear_0"], made[f"{at}/ffn/linear_1"] = [f"{of}.fc1"], [f"{of}.fc2"]
            made[f"{at}/ffn/layer_norm"] = [f"{of}.final_layer_norm"]
        made[f"{side}/layer_norm"] = [f"model.{side}.layer_norm"]
    made |= {f"encoder/{c}": [f"model.encoder.{c}"] for c in ("conv1", "conv2")}
    return made


def ct2_variables(sizes: dict[str, int], state: State) -> dict[str, tuple[np.ndarray, list[str]]]:
    """Every float variable with the tensors that it holds, in order."""
    variables = {}
    for variable, sources in ct2_sources(sizes).items():
        for part, norm_part in (("weight", "gamma"), ("bias", "beta")):
            names = [f"{source}.{part}" for source in sources]
            rows = [
                state.get(n, np.zeros(len(state[n[:-4] + "weight"]), np.float32))
                if part == "bias"
                else state[n]
                for n in names
            ]
            name = f"{variable}/{norm_part if variable.endswith('layer_norm') else part}"
            variables[name] = np.concatenate(rows), names
    for side in ("encoder", "decoder"):
        source = f"model.{side}.embed_positions.weight"
        variables[f"{side}/position_encodings/encodings"] = state[source], [source]
    variables["decoder/embeddings/weight"] = state[EMBEDDING], [EMBEDDING]
    return variables


def ct2_stored(value: np.ndarray, name: str, kind: str) -> tuple[dict[str, tuple], np.ndarray]:
    """A variable as the kind stores it, {name: (type, array)}, and its values again."""
    if name.endswith("/weight") and kind in ("int8", "int8_float16", "int16"):
        if kind == "int16":
            scale = np.float32(2**10 / np.abs(value).max())  # a power of two over the largest value
            q = np.clip(np.rint(value * scale), -32768, 32767).astype(np.int16)
            stored = {name: ("int16", q), f"{name}_scale": ("float32", np.float32(scale))}
            return stored, q.astype(np.float32) / scale
        largest = np.abs(value.reshape(len(value), -1)).max(1)
        largest[largest == 0] = 127
        scale = (127 / largest).astype(np.float32)
        rows = scale.reshape([-1] + [1] * (value.ndim - 1))
        q = np.rint(value * rows).astype(np.int8)
        stored = {name: ("int8", q), f"{name}_scale": ("float32", scale)}
        return stored, q.astype(np.float32) / rows
    if kind in ("float16", "int8_float16"):
        half = value.astype(np.float16)
        return {name: ("float16", half)}, half.astype(np.float32)
    if kind == "bfloat16":
        upper = (value.view(np.uint32) >> 16).astype(
            np.uint16
        )  # cut, not rounded: exact either way
        return {name: ("bfloat16", upper)}, (upper.astype(np.uint32) << 16).view(np.float32)
    return {name: ("float32", value)}, value


def write_ct2(path: Path, sizes: dict[str, int], state: State, kind: str) -> State:
    """CTranslate2's WhisperSpec revision 3 in container version 6."""
    found = dict(state)
    stored: dict[str, tuple] = {
        "encoder/num_heads": ("int16", np.int16(sizes["n_audio_head"])),
        "decoder/num_heads": ("int16", np.int16(sizes["n_text_head"])),
        "decoder/alignment_heads": ("int16", np.int16(1)),
        "decoder/alignment_layer": ("int16", np.int16(-1)),
    }
    flags = {"activation": 3, "alibi": 0, "pre_norm": 1, "scale_embeddings": 0}
    flags["start_from_zero_embedding"] = 0
    stored |= {f"decoder/{name}": ("int8", np.int8(value)) for name, value in flags.items()}
    for name, (value, sources) in ct2_variables(sizes, state).items():
        variables, back = ct2_stored(value, name, kind)
        stored |= variables
        for source, rows in zip(sources, np.split(back, len(sources)), strict=True):
            if source in found:
                found[source] = rows

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    with path.open("wb") as file:
        file.write(struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<2I", 3, len(stored)))
        for name, (as_type, value) in sorted(stored.items()):
            file.write(text(name) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape))
            file.write(struct.pack("<BI", CT2_TYPES[as_type], value.nbytes))
            file.write(np.ascontiguousarray(value).tobytes())
        file.write(struct.pack("<I", 1))
        file.write(text("decoder/projection/weight") + text("decoder/embeddings/weight"))
    return found


# -- MLX ------------------------------------------------------------------------------------------


def mlx_name(name: str) -> str:
    """The name of a tensor in mlx-examples/whisper."""
    return openai_name(name).replace(".mlp.0.", ".mlp1.").replace(".mlp.2.", ".mlp2.")


def mlx_tensors(state: State) -> State:
    """float16, convolutions time first, no encoder positions."""
    return {
        mlx_name(name): np.ascontiguousarray(
            value.swapaxes(1, 2) if value.ndim == 3 else value, np.float16
        )
        for name, value in state.items()
        if name != POSITIONS
    }


def mlx_quantised(state: State, group: int, bits: int) -> tuple[dict[str, np.ndarray], State]:
    """Affine quantisation of matrices whose rows are whole groups; tensors, and values again."""
    tensors, found = dict(mlx_tensors(state)), halved(state) | {POSITIONS: state[POSITIONS]}
    for name in state:
        own = mlx_name(name)
        value = tensors.get(own)
        if (
            value is None
            or value.ndim != 2
            or not own.endswith(".weight")
            or value.shape[1] % group
        ):
            continue
        rows, columns = value.shape
        x = value.reshape(rows, columns // group, group).astype(np.float32)
        low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
        scale = np.maximum((high - low) / (2**bits - 1), 1e-7).astype(np.float16)
        bias = low.astype(np.float16)
        steps, zero = scale.astype(np.float32), bias.astype(np.float32)
        q = np.clip(np.rint((x - zero) / steps), 0, 2**bits - 1).astype(np.uint8)
        stream = np.unpackbits(q.reshape(rows, columns, 1), axis=2, bitorder="little")[:, :, :bits]
        packed = np.packbits(stream.reshape(rows, -1), axis=1, bitorder="little")
        stem = own.removesuffix("weight")
        tensors[own] = packed.view("<u4")
        tensors[f"{stem}scales"], tensors[f"{stem}biases"] = scale[..., 0], bias[..., 0]
        found[name] = (q * steps + zero).reshape(rows, columns).astype(np.float32)
    return tensors, found
