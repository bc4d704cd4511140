"""One tree from any checkpoint, and what is said where it does not fit."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.audio.mel import mel_filters
from oscine.models.parakeet.weights import load_weights
from oscine.tree import tree_paths
from oscine.weights import read_checkpoint
from oscine.weights.safetensors import serialize

from ..trees import refused_by

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
FORMATS = GOLDENS / "parakeet_formats"
BLOCK = "encoder.layers.0"

Arrays = dict[str, np.ndarray]
Config = dict[str, Any]


def write(folder: Path, arrays: Arrays, config: Config | None, like: str = "hf") -> Path:
    """A checkpoint folder of these tensors beside the golden's tokenizer."""
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(serialize(arrays))
    if like == "hf":
        for name in ("tokenizer.json", "processor_config.json", "preprocessor_config.json"):
            shutil.copy(FORMATS / "hf" / name, folder)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def tensors(name: str) -> Arrays:
    return {
        n: e.read()
        for n, e in read_checkpoint(FORMATS / name).tensors.items()
        if e.dtype.kind == "f"
    }


@pytest.fixture
def hugging() -> tuple[Arrays, Config]:
    """The golden of transformers, to be changed."""
    return tensors("hf"), json.loads((FORMATS / "hf" / "config.json").read_text())


@pytest.fixture
def mlx() -> tuple[Arrays, Config]:
    """The golden of MLX, whose configuration is NeMo's."""
    return tensors("mlx"), json.loads((FORMATS / "mlx" / "config.json").read_text())


def arrays_of(path: Path) -> Arrays:
    weights = load_weights(path)
    return tree_paths((weights.encoder, weights.transducer))


def refused(folder: Path) -> str:
    return refused_by(load_weights, folder)


@pytest.mark.parametrize("name", ["model.nemo", "hybrid_gz.nemo", "mlx"])
def test_the_same_network_is_the_same_tree_in_every_format(name: str) -> None:
    first, other = arrays_of(FORMATS / "hf"), arrays_of(FORMATS / name)
    assert first.keys() == other.keys()
    for at, value in first.items():
        assert value.dtype == other[at].dtype and np.array_equal(value, other[at]), at


def test_quantised_matrices_are_those_before_to_half_a_step() -> None:
    first, other = arrays_of(FORMATS / "hf"), arrays_of(FORMATS / "mlx_q8")
    assert first.keys() == other.keys()
    for at, value in first.items():
        limit = float(np.ptp(value)) / 255 * 0.6
        assert np.abs(value - other[at]).max() <= limit, at
    assert any(not np.array_equal(value, other[at]) for at, value in first.items())


def test_shards_are_the_whole(tmp_path: Path, hugging: tuple[Arrays, Config]) -> None:
    arrays, config = hugging
    folder = write(tmp_path / "parts", {}, config)
    weight_map: dict[str, str] = {}
    for index, names in enumerate((list(arrays)[::2], list(arrays)[1::2])):
        shard = f"model-{index + 1:05d}-of-00002.safetensors"
        write(tmp_path / "one", {name: arrays[name] for name in names}, None)
        shutil.move(tmp_path / "one" / "model.safetensors", folder / shard)
        weight_map |= dict.fromkeys(names, shard)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    first, other = arrays_of(FORMATS / "hf"), arrays_of(folder)
    assert all(np.array_equal(value, other[at]) for at, value in first.items())


def test_half_precision_stays_and_vectors_are_single(tmp_path: Path, hugging: Any) -> None:
    arrays, config = hugging
    folder = write(tmp_path / "half", {n: a.astype(np.float16) for n, a in arrays.items()}, config)
    weights = load_weights(folder)
    assert weights.stored_dtype == "f16" and weights.transducer is not None
    assert weights.encoder.blocks[0].self_attn.linear_qkv.weight.dtype == np.float16
    assert weights.encoder.blocks[0].feed_forward1.linear2.weight.dtype == np.float16
    assert weights.encoder.subsampling_linear.weight.dtype == np.float16  # √16 is a power of two
    assert weights.encoder.blocks[0].self_attn.pos_bias_u.dtype == np.float32
    assert weights.encoder.subsampling_first_conv.weight.dtype == np.float32
    assert weights.transducer.lstm[0].input.bias.dtype == np.float32
    assert load_weights(GOLDENS / "parakeet_ctc").stored_dtype == "f32"  # bfloat16


def test_a_half_precision_projection_is_single_where_scaling_would_round(tmp_path: Path) -> None:
    shutil.copytree(GOLDENS / "parakeet_tdt", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["encoder_config"]["scale_input"] = True  # √24 is no power of two
    arrays = {n: a.astype(np.float16) for n, a in tensors("../parakeet_tdt").items()}
    weights = load_weights(write(tmp_path / "m", arrays, config, "tdt"))
    exact = arrays["encoder.subsampling.linear.bias"].astype(np.float32) * np.float32(np.sqrt(24))
    assert weights.encoder.subsampling_linear.weight.dtype == np.float32
    assert np.allclose(weights.encoder.subsampling_linear.bias, exact, rtol=1e-6)
    assert weights.encoder.blocks[0].feed_forward1.linear1.weight.dtype == np.float16


def test_folds_are_those_of_the_formulas() -> None:
    config, raw = load_weights(FORMATS / "hf").config, tensors("hf")
    weights = load_weights(FORMATS / "hf")
    encoder, transducer = weights.encoder, weights.transducer
    assert transducer is not None and config.xscaling
    project = raw["encoder.subsampling.linear.weight"]
    bins = project.shape[1] // config.subsampling_channels
    for channel, frequency in ((0, 0), (2, 1), (3, bins - 1)):
        column = project[:, channel * bins + frequency] * np.sqrt(config.d_model)
        ours = encoder.subsampling_linear.weight[
            :, frequency * config.subsampling_channels + channel
        ]
        assert np.allclose(ours, column)
    first = raw["encoder.subsampling.layers.0.weight"]
    assert encoder.subsampling_first_conv.weight[1, 2, 3] == first[3, 0, 1, 2]
    half = raw[f"{BLOCK}.feed_forward2.linear2.weight"] * np.float32(0.5)
    assert np.array_equal(encoder.blocks[0].feed_forward2.linear2.weight, half)
    x = np.random.default_rng(0).standard_normal((20, config.d_model))
    kernel, bias = (raw[f"{BLOCK}.conv.depthwise_conv.{part}"] for part in ("weight", "bias"))
    norm = {p: raw[f"{BLOCK}.conv.norm.{p}"] for p in ("weight", "bias")}
    norm |= {p: raw[f"{BLOCK}.conv.norm.running_{p}"] for p in ("mean", "var")}
    plain = sum(
        x[k : k + 20 - config.conv_kernel_size + 1] * kernel[:, 0, k]
        for k in range(config.conv_kernel_size)
    )
    wanted = (plain + bias - norm["mean"]) / np.sqrt(norm["var"] + 1e-5) * norm["weight"]
    folded = encoder.blocks[0].conv.depthwise_conv
    ours = sum(
        x[k : k + 20 - config.conv_kernel_size + 1] * folded.weight[k]
        for k in range(config.conv_kernel_size)
    )
    assert np.allclose(ours + folded.bias, wanted + norm["bias"], atol=1e-5)
    both = raw["decoder.lstm.bias_ih_l1"] + raw["decoder.lstm.bias_hh_l1"]
    assert np.array_equal(transducer.lstm[1].input.bias, both)
    assert transducer.lstm[1].hidden.bias is None
    assert not transducer.embedding[config.blank_id].any()
    v = raw[f"{BLOCK}.self_attn.v_proj.weight"]
    assert np.array_equal(encoder.blocks[0].self_attn.linear_qkv.weight[2 * config.d_model :], v)


def test_channels_are_filled_with_zeros_to_a_multiple_of_four(tmp_path: Path, hugging: Any) -> None:
    arrays, config = hugging
    at = "encoder.subsampling"
    c, bins = 3, arrays[f"{at}.linear.weight"].shape[1] // 4
    arrays[f"{at}.linear.weight"] = arrays[f"{at}.linear.weight"][:, : c * bins].copy()
    for name in [name for name in arrays if name.startswith(f"{at}.layers.")]:
        array = arrays[name][:c]
        arrays[name] = (array[:, :c] if array.ndim == 4 else array).copy()
    config["encoder_config"]["subsampling_conv_channels"] = c
    weights = load_weights(write(tmp_path / "m", arrays, config))
    assert weights.config.subsampling_channels == c
    first, project = (
        weights.encoder.subsampling_first_conv,
        weights.encoder.subsampling_linear.weight,
    )
    assert first.weight.shape == (3, 3, 4) and not first.weight[..., c].any()
    assert first.bias is not None and first.bias.shape == (4,) and first.bias[c] == 0
    for layer in weights.encoder.subsampling_layers:
        assert layer.depthwise.weight.shape == (3, 3, 4)
        assert layer.pointwise.weight.shape == (4, 4)
        assert not layer.pointwise.weight[c].any() and not layer.pointwise.weight[:, c].any()
    split = project.reshape(len(project), bins, 4)
    assert not split[..., c].any()
    raw = arrays[f"{at}.linear.weight"].reshape(len(project), c, bins).transpose(0, 2, 1)
    np.testing.assert_array_equal(split[..., :c], raw * np.float32(4))  # √16, as inputs are scaled


@pytest.mark.parametrize("dtype", ["auto", "f16", "f32"])
def test_a_prediction_network_of_several_types_is_of_one(
    tmp_path: Path, hugging: Any, dtype: str
) -> None:
    arrays, config = hugging
    name = "decoder.embedding.weight"
    arrays[name] = arrays[name].astype(np.float16)
    weights = load_weights(write(tmp_path / "m", arrays, config), dtype)
    assert weights.transducer is not None and weights.stored_dtype == "f32"
    matrices = [weights.transducer.embedding] + [
        layer.weight for cell in weights.transducer.lstm for layer in (cell.input, cell.hidden)
    ]
    assert {m.dtype for m in matrices} == {np.dtype(np.float16 if dtype == "f16" else np.float32)}


@pytest.mark.parametrize(
    ("case", "sizes"),
    [
        ("parakeet_ctc", {"has_ctc": True, "predictor_dim": 0, "durations": (), "blank_id": 48}),
        ("parakeet_tdt", {"durations": (0, 1, 2, 4), "has_transducer": True, "xscaling": False}),
        (
            "parakeet_rnnt",
            {"durations": (), "subsampling_factor": 4, "frame_seconds": 0.04, "joint_dim": 16},
        ),
    ],
)
def test_sizes_are_those_of_the_configuration(case: str, sizes: Config) -> None:
    weights = load_weights(GOLDENS / case)
    assert {name: getattr(weights.config, name) for name in sizes} == sizes
    assert len(weights.vocabulary) == weights.config.vocab_size == 48
    assert (
        len(weights.encoder.subsampling_layers) == {8: 2, 4: 1}[weights.config.subsampling_factor]
    )


def test_a_hybrid_has_both_heads() -> None:
    weights = load_weights(FORMATS / "hybrid_gz.nemo")
    assert weights.config.has_ctc and weights.transducer is not None
    assert weights.ctc is not None and weights.ctc.weight.shape == (49, 16)


def test_sizes_are_seen_where_they_are_not_stated(tmp_path: Path, mlx: Any) -> None:
    arrays, config = mlx
    for key in ("d_model", "n_layers", "n_heads", "conv_kernel_size", "feat_in"):
        del config["encoder"][key]
    del config["encoder"]["subsampling_conv_channels"], config["preprocessor"]
    del config["decoder"]["prednet"], config["joint"]["jointnet"], config["decoding"]
    folder = write(tmp_path / "m", arrays, config, "mlx")
    found, known = load_weights(folder).config, load_weights(FORMATS / "mlx").config
    assert found == known and found.max_symbols == 10


def test_a_joint_network_without_dropout_is_one_layer_shorter(tmp_path: Path, mlx: Any) -> None:
    arrays, config = mlx
    moved = {n.replace("joint.joint_net.2.", "joint.joint_net.1."): a for n, a in arrays.items()}
    first = arrays_of(write(tmp_path / "m", moved, config, "mlx"))
    assert all(np.array_equal(v, first[at]) for at, v in arrays_of(FORMATS / "mlx").items())


def test_networks_without_biases_have_none() -> None:
    block = load_weights(GOLDENS / "parakeet_tdt").encoder.blocks[1]
    assert block.feed_forward1.linear1.bias is None and block.feed_forward2.linear2.bias is None
    assert block.self_attn.linear_qkv.bias is None and block.self_attn.linear_out.bias is None
    assert block.conv.pointwise_conv1.bias is None and block.conv.pointwise_conv2.bias is None
    assert block.conv.depthwise_conv.bias is not None  # of the batch norm


def test_what_is_of_training_only_is_dropped(tmp_path: Path, mlx: Any) -> None:
    arrays, config = mlx
    names = ("loss.w", "joint._loss.x", "spec_augmentation.y")
    more = dict.fromkeys(names, np.zeros(2, np.float32))
    assert load_weights(write(tmp_path / "m", arrays | more, config, "mlx")).config.vocab_size == 48


def test_a_blank_row_that_is_not_zero_is_taken_for_zero(
    tmp_path: Path, hugging: Any, caplog: pytest.LogCaptureFixture
) -> None:
    arrays, config = hugging
    arrays["decoder.embedding.weight"] = arrays["decoder.embedding.weight"] + 1
    with caplog.at_level(logging.WARNING):
        weights = load_weights(write(tmp_path / "m", arrays, config))
    assert weights.transducer is not None and not weights.transducer.embedding[48].any()
    assert weights.transducer.embedding[47].any()
    assert "blank's row of the embedding" in caplog.text


def test_scaling_that_is_not_stated_is_true_with_a_warning(
    tmp_path: Path, mlx: Any, caplog: pytest.LogCaptureFixture
) -> None:
    arrays, config = mlx
    del config["encoder"]["xscaling"]
    with caplog.at_level(logging.WARNING):
        assert load_weights(write(tmp_path / "m", arrays, config, "mlx")).config.xscaling
    assert "has no encoder.xscaling" in caplog.text


def test_local_attention_is_kept(tmp_path: Path, mlx: Any) -> None:
    arrays, config = mlx
    config["encoder"]["self_attention_model"] = "rel_pos_local_attn"
    config["encoder"]["att_context_size"] = [128, 64]
    assert load_weights(write(tmp_path / "m", arrays, config, "mlx")).config.attention_window == (
        128,
        64,
    )
    assert load_weights(FORMATS / "mlx").config.attention_window is None


def put(config: Config, key: str, value: object) -> None:
    """Set a dotted key; "absent" takes it away."""
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
    if value == "absent":
        config.pop(last, None)
    else:
        config[last] = value


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("target", "nemo.X.EncDecMultiTaskModel", "EncDecMultiTaskModel"),
        ("target", "a.EncDecHybridRNNTCTCBPEModelWithPrompt", "WithPrompt"),
        ("encoder.self_attention_model", "abs_pos", "'abs_pos'"),
        ("encoder.subsampling", "striding", "'striding'"),
        ("encoder.subsampling_factor", 2, "subsampling_factor = '2'"),
        ("encoder.conv_norm_type", "group_norm", "'group_norm'"),
        ("encoder.conv_norm_type", "layer_norm", "streaming model (encoder.conv_norm_type"),
        ("encoder.causal_downsampling", True, "streaming model (encoder.causal_downsampling"),
        ("encoder.att_context_style", "chunked_limited", "'chunked_limited'"),
        ("encoder.conv_context_size", "causal", "streaming model (encoder.conv_context_size"),
        ("preprocessor.normalize", "NA", "streaming model (preprocessor.normalize = 'NA')"),
        ("encoder.att_context_size", [70, 1], "[70, 1]"),
        ("encoder.untie_biases", False, "untie_biases"),
        ("encoder.reduction", "pooling", "'pooling'"),
        ("encoder.xscaling", "yes", "xscaling = 'yes'"),
        ("encoder.n_heads", 3, "width 16 must be even and divisible by 3 heads"),
        ("encoder.n_heads", 0, "n_heads = '0'"),
        ("encoder.n_heads", 4, "pos_bias_u [2, 8] float32, not [4, 4]"),
        ("encoder.n_layers", 2, "missing encoder.layers.1."),
        ("encoder.n_layers", 10**6, "1000000 encoder layers"),
        ("encoder.conv_kernel_size", 4, "a convolution kernel of 4"),
        ("preprocessor.features", 80, "80 mel bins, but the network is made for 24"),
        ("preprocessor.window_size", 0.02, "window_size = '0.02'"),
        ("preprocessor.sample_rate", 8000, "sample_rate = '8000'"),
        ("preprocessor.preemph", 0.0, "preemph"),
        ("joint.jointnet.activation", "tanh", "'tanh'"),
        ("decoder.blank_as_pad", False, "blank_as_pad"),
        ("tokenizer.type", "agg", "'agg'"),
        ("decoder.vocab_size", 47, "decoder.vocab_size = 47 and joint.num_classes = 48"),
        ("decoding.greedy.max_symbols", 0, "max_symbols = '0'"),
        ("preprocessor.normalize", None, "preprocessor.normalize = 'None'"),
        ("preprocessor.n_window_size", 320, "n_window_size = '320'"),
        ("encoder.att_context_size", [[70, 13], [70, 6]], "att_context_size"),
        ("decoding.durations", [0, 1, 2, 3, 5], "durations differ"),
        ("decoding.durations", [0, -1], "durations = '[0, -1]'"),
        ("joint.num_extra_outputs", 4, "num_extra_outputs = '4'"),
        ("joint.vocabulary", ["a"], "1 labels, the network 48"),
    ],
)
def test_what_is_not_built_is_refused_by_name(
    tmp_path: Path, mlx: Any, key: str, value: object, said: str
) -> None:
    arrays, config = mlx
    put(config, key, value)
    assert said in refused(write(tmp_path / "m", arrays, config, "mlx"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder.att_context_size", None),
        ("encoder.att_context_size", []),
        ("encoder.att_context_size", [[-1, -1]]),
        ("decoding.durations", []),
        ("decoding.big_blank_durations", []),
        ("loss.tdt_kwargs", None),
        ("decoding", None),
        ("aux_ctc", None),
        ("model_type", None),
        ("tokenizer.langs", {}),
        ("preprocessor.window_size", None),
        ("preprocessor.n_window_size", 400),
    ],
)
def test_empty_values_state_nothing(tmp_path: Path, mlx: Any, key: str, value: object) -> None:
    arrays, config = mlx
    folder = write(tmp_path / "before", arrays, config, "mlx")
    before = load_weights(folder).config
    put(config, key, value)
    assert load_weights(write(tmp_path / "m", arrays, config, "mlx")).config == before


@pytest.mark.parametrize("like", ["mlx", "hf"])
def test_no_limit_of_labels_is_taken_for_the_usual_one(
    tmp_path: Path, mlx: Any, hugging: Any, like: str, caplog: pytest.LogCaptureFixture
) -> None:
    arrays, config = mlx if like == "mlx" else hugging
    put(config, "decoding.greedy.max_symbols" if like == "mlx" else "max_symbols_per_step", None)
    found = load_weights(write(tmp_path / "m", arrays, config, like)).config
    assert found.max_symbols == 10 and "no limit of tokens" in caplog.text


def all_durations(value: object) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        for key in ("decoding.durations", "model_defaults.tdt_durations"):
            put(config, key, value)

    return change


def other_vocabulary(config: Config) -> None:
    for key in ("decoder.vocab_size", "joint.num_classes"):
        put(config, key, 50)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (all_durations("absent"), "TDT needs durations"),
        (all_durations([0]), "at least one above 0"),
        (all_durations([1, 0, 2, 3, 4]), "increasing"),
        (all_durations([0, 1, 2, 3]), "num_extra_outputs = '5'"),
        (
            other_vocabulary,
            "50 labels and the blank, 49 rows of the embedding, 54 rows of",
        ),
    ],
)
def test_numbers_that_contradict_each_other_are_named(
    tmp_path: Path, mlx: Any, change: Callable[[Config], None], said: str
) -> None:
    arrays, config = mlx
    change(config)
    assert said in refused(write(tmp_path / "m", arrays, config, "mlx"))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model_type", "parakeet_encoder", "'parakeet_encoder'"),
        ("model_type", "nemotron_asr_streaming", "streaming model (nemotron_asr_streaming)"),
        ("encoder_config.hidden_act", "gelu", "'gelu'"),
        ("encoder_config.subsampling_conv_stride", 1, "subsampling_conv_stride"),
        ("hidden_act", "tanh", "'tanh'"),
        ("blank_token_id", 3, "blank_token_id = '3'"),
        ("durations", "absent", "durations"),
        ("durations", [0, 1, 2], "49 rows of the embedding, 54 rows"),
        ("vocab_size", 60, "60 labels"),
        ("max_symbols_per_step", 0, "max_symbols_per_step = '0'"),
        ("encoder_config.num_mel_bins", 80, "has 80 mel bins"),
        ("encoder_config.scale_input", 1, "scale_input = '1'"),
    ],
)
def test_settings_of_transformers_are_held_to_the_same(
    tmp_path: Path, hugging: Any, key: str, value: object, said: str
) -> None:
    arrays, config = hugging
    put(config, key, value)
    if key == "vocab_size":
        config["blank_token_id"] = 59
        said = "59 labels and the blank, 49 rows"
    assert said in refused(write(tmp_path / "m", arrays, config))


def test_another_front_end_is_refused(tmp_path: Path, hugging: Any) -> None:
    folder = write(tmp_path / "m", *hugging)
    settings = json.loads((folder / "processor_config.json").read_text())
    settings["feature_extractor"]["preemphasis"] = 0.5
    (folder / "processor_config.json").write_text(json.dumps(settings))
    assert "preemphasis = '0.5'" in refused(folder)


def test_no_configuration_or_no_encoder_says_so(tmp_path: Path, hugging: Any) -> None:
    arrays, config = hugging
    assert "has no configuration" in refused(write(tmp_path / "a", arrays, None))
    part = {name: value for name, value in arrays.items() if "subsampling" not in name}
    assert "has no FastConformer encoder" in refused(write(tmp_path / "b", part, config))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("joint.head.weight", None, "missing joint.head.weight"),
        (f"{BLOCK}.norm_out.bias", None, f"missing {BLOCK}.norm_out.bias"),
        (f"{BLOCK}.self_attn.q_proj.bias", None, f"missing {BLOCK}.self_attn.q_proj.bias"),
        (f"{BLOCK}.conv.depthwise_conv.bias", None, "missing encoder.layers.0.conv.depthwise_conv"),
        ("more.weight", np.zeros(3, np.float32), "unexpected more.weight"),
        (f"{BLOCK}.norm_out.weight", np.zeros(15, np.float32), "norm_out.weight [15] float32"),
        (f"{BLOCK}.norm_out.weight", np.zeros(16, np.int32), "norm_out.weight [16] int32"),
        ("decoder.lstm.weight_hh_l0", np.zeros((16, 64), np.float32), "[16, 64] float32, not [64"),
        (f"{BLOCK}.conv.norm.running_var", -np.ones(16, np.float32), "a negative variance"),
        ("encoder.layers.0.self_attn.bias_u", np.zeros(16, np.float32), "bias_u [16]"),
    ],
)
def test_tensors_that_do_not_fit_are_named_as_the_file_does(
    tmp_path: Path, hugging: Any, name: str, change: np.ndarray | None, said: str
) -> None:
    arrays, config = hugging
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change
    assert said in refused(write(tmp_path / "m", arrays, config))


@pytest.mark.parametrize(
    ("bank", "said"),
    [
        (np.zeros((1, 24, 257), np.float32), "not Slaney's"),
        (np.zeros(3, np.float32), "fb [3], not"),
    ],
)
def test_another_mel_bank_is_refused(tmp_path: Path, mlx: Any, bank: np.ndarray, said: str) -> None:
    arrays, config = mlx
    name = "preprocessor.featurizer.fb"
    known = mel_filters(24, 512)[None]
    assert load_weights(write(tmp_path / "a", arrays | {name: known}, config, "mlx")).stored_dtype
    assert said in refused(write(tmp_path / "b", arrays | {name: bank}, config, "mlx"))


def test_two_tensors_of_one_meaning_are_refused(tmp_path: Path, mlx: Any) -> None:
    arrays, config = mlx
    arrays["joint.joint_net.1.weight"] = arrays["joint.joint_net.2.weight"]
    assert "have the same meaning" in refused(write(tmp_path / "m", arrays, config, "mlx"))
