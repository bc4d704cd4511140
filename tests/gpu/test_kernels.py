"""Kernels as files: the loader, and what every file must hold to."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.kernels import (
    USE_PATTERN,
    Pipeline,
    PipelineCache,
    adapt_to_compiler,
    choices_of,
    kernel_files,
    load,
    source_of,
    text,
)
from oscine.ops import cases, state
from oscine.ops.reference import activations, sampling

FILES = sorted(kernel_files())
KERNELS = [name for name in FILES if not name.startswith("_")]
#: What is for matrix units, and what asks a device for the size of its subgroups.
MATRIX = {"attention_matrix", "gemm_matrix", "rel_pos_attention_matrix"}
WITH_FEATURES = MATRIX | {"subgroup_size_probe"}
MAX_BUFFERS = 8  # what WebGPU promises of every device


def constants(source: str) -> dict[str, str]:
    """Top-level constants by name."""
    return dict(re.findall(r"^const (\w+): \w+ = ([^;]+);", source, re.MULTILINE))


def numbers(source: str, variable: str) -> list[float]:
    """The coefficients of a Horner scheme over one variable, in order."""
    found = re.findall(rf"\b{variable} = (?:{variable} \* s ([+-]) )?(-?[\d.e-]+);", source)
    return [float(value) * (-1 if sign == "-" else 1) for sign, value in found]


def pcg(value: int) -> int:
    """O'Neill 2014, PCG: the hash RXS-M-XS of 32 bits."""
    x = (value * 747796405 + 2891336453) % 2**32
    word = ((x >> ((x >> 28) + 4)) ^ x) * 277803737 % 2**32
    return (word >> 22) ^ word


# -- the loader -----------------------------------------------------------------------------------


def test_parameters_are_set_by_name() -> None:
    source = load("layer_norm", ROWS=7, WIDTH4=96)
    assert constants(source) | {"ROWS": "7", "WIDTH4": "96"} == constants(source)


def test_values_are_spelled_as_wgsl_does() -> None:
    found = constants(load("gemm", BIAS=True, X_BEGIN4=-40))
    assert (found["BIAS"], found["ADD"], found["X_BEGIN4"]) == ("true", "false", "-40")


def test_only_the_named_line_changes() -> None:
    before, after = load("gemm").splitlines(), load("gemm", K4=77).splitlines()
    changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert len(changed) == 1
    assert changed[0][1] == "const K4: u32 = 77;"


@pytest.mark.parametrize("name", ["RWS", "rows", "y", "WIDTH"])
def test_an_unknown_parameter_is_an_error(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        load("layer_norm", **{name: 3})


def test_an_unknown_kernel_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load("layer_form")


def test_use_lines_are_pasted_and_all_gone() -> None:
    for name in KERNELS:
        assert "// use _" not in load(name), name
    layout = text("_text_decoder_state")
    assert layout in load("kv_cache_write")
    assert layout not in load("layer_norm")


def test_a_name_is_that_of_one_file() -> None:
    folders = [folder for folder in files("oscine.kernels").iterdir() if folder.is_dir()]
    names = [file.name for folder in folders for file in folder.iterdir()]
    assert sorted(names) == [f"{name}.wgsl" for name in FILES]


def test_folders_are_the_kinds_of_ops() -> None:
    folders = {folder.name for folder in files("oscine.kernels").iterdir() if folder.is_dir()}
    kinds = {file.stem for file in Path(cases.__file__).parent.glob("[a-z]*.py")}
    assert folders == kinds | {"common"}


def test_every_choice_is_a_text_and_its_default_the_first() -> None:
    seen = set()
    for name in FILES:
        for use in USE_PATTERN.finditer(source_of(name)):
            assert use["part"] in FILES
            if use["parameter"]:
                prefix, values = use["part"].rpartition("_")[0], use["values"].split(", ")
                assert [f"{prefix}_{value}" in FILES for value in values] == [True] * len(values)
                assert use["part"] == f"{prefix}_{values[0]}"
                seen |= {f"{prefix}_{value}" for value in values}
    assert {"_weights_bf16", "_row_reduce_shared", "_load_eight", "_store_f16"} <= seen


@pytest.mark.parametrize(
    ("name", "choice"),
    [("gemm", {"WEIGHTS": "f64"}), ("layer_norm", {"WEIGHTS": "f32"}), ("embed", {"STORE": "f16"})],
)
def test_what_a_kernel_does_not_let_choose_is_an_error(name: str, choice: Any) -> None:
    with pytest.raises(KeyError, match=f"{name} has no"):
        load(name, **choice)


def test_choices_replace_the_default_text() -> None:
    halves, whole = load("gemm", WEIGHTS="f16"), load("gemm", WEIGHTS="f32")
    assert text("_weights_f16") in halves and text("_weights_f16") not in whole
    assert text("_weights_f32") in whole and text("_weights_f32") not in halves
    assert "subgroupAdd" in load("layer_norm", ROW_REDUCE="subgroup")
    assert "subgroupAdd" not in load("layer_norm", ROW_REDUCE="shared")


def test_naga_gets_none_of_tints_lines_and_tint_gets_them_first_and_once() -> None:
    for name in KERNELS:
        source = load(name)
        naga, tint = adapt_to_compiler(source, "wgpu"), adapt_to_compiler(source, "dawn")
        for line in ("enable subgroups;", "diagnostic(off, subgroup_uniformity);"):
            assert line not in naga, name
            assert tint.count(line) == min(1, source.count(line)), name
        heads = [line.startswith(("enable", "diagnostic")) for line in tint.splitlines()]
        assert heads == sorted(heads, reverse=True), name
        assert tint.endswith(naga)


# -- the files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_says_what_it_computes_and_how_it_is_launched(name: str) -> None:
    lines = text(name).splitlines()
    end = next(at for at, line in enumerate(lines) if not line.startswith("//"))
    raw = source_of(name)
    header = raw[: raw.index("// use")] if "// use" in raw else "\n".join(lines[:end])
    assert all(line.startswith("//") for line in header.splitlines())
    assert re.search(r"= |[Cc]andidates|decision|softmax", header), "no formula"
    assert re.search(r"[Ll]aunch|one workgroup", header), "nothing on the launch"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_binds_what_every_device_can(name: str) -> None:
    source = load(name)
    bindings = [int(n) for n in re.findall(r"@binding\((\d+)\) var<storage", source)]
    assert bindings == list(range(len(bindings)))
    assert 1 <= len(bindings) <= MAX_BUFFERS
    assert source.count("@compute") == 1
    assert "fn main(" in source


def offsets(file: str, prefix: str = "") -> dict[str, int]:
    """By lower-case name, the words that the constants of a shared text count."""
    found = {name: int(word.rstrip("u")) for name, word in constants(text(file)).items()}
    return {
        name.removeprefix(prefix).lower(): word
        for name, word in found.items()
        if name.startswith(prefix)
    }


def test_the_header_in_kernels_is_that_of_ops() -> None:
    assert offsets("_header") == {name: at for at, (name, _) in enumerate(ops.HEADER)}


#: By the name of a dtype of ops.state: its shared text, what its constants begin with, and the
#: constant that holds the words of a record.
LAYOUTS = {
    "TEXT_DECODER_STATE": ("_text_decoder_state", "", "words"),
    "TRANSDUCER_STATE": ("_transducer_state", "", "words"),
    "TALKER_STATE": ("_talker_state", "", "words"),
    "DECODE_PARAMS": ("_decode_params", "", "params_words"),
    "SAMPLING_PARAMS": ("_sampling_params", "", "params_words"),
    "FINISHED_BEAM": ("_finished_beam", "BEAM_", "words"),
    "TRANSDUCER_STEP": ("_transducer_step", "STEP_", "words"),
    "GRAPH_NODE": ("_context_graph", "NODE_", "words"),
    "GRAPH_ARC": ("_context_graph", "ARC_", "words"),
}


def test_every_dtype_of_ops_has_a_layout_in_kernels() -> None:
    dtypes = {name for name, value in vars(state).items() if isinstance(value, np.dtype)}
    assert dtypes == set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_in_kernels_is_that_of_ops(name: str) -> None:
    """Every field in its place, each of 4 bytes; those of a state row begin with the header's."""
    (file, prefix, words), dtype = LAYOUTS[name], getattr(state, name)
    found = offsets(file, prefix)
    assert found.pop(words) * 4 == dtype.itemsize
    assert found == {name: at for at, name in enumerate(dtype.names) if name != "unused"}
    if name.endswith("_STATE"):
        assert dtype.names[: len(ops.HEADER)] == tuple(name for name, _ in ops.HEADER)


def test_neg_inf_is_the_same() -> None:
    assert float(constants(text("_neg_inf"))["NEG_INF"]) == ops.NEG_INF


def test_stops_and_masks_in_kernels_are_those_of_ops() -> None:
    stops = {k: v for k, v in constants(text("sample_token")).items() if k.startswith("STOP_")}
    assert len(stops) == 4
    masks = {
        k: v for k, v in constants(text("sample_token_partial")).items() if k.startswith("SUPPRESS")
    }
    assert len(masks) == 2
    for name, value in (stops | masks).items():
        assert int(value.rstrip("u")) == getattr(ops, name)


@pytest.mark.parametrize(
    ("name", "norm"),
    [("layer_norm", ops.LayerNorm), ("gemv", ops.LayerNorm), ("rms_norm", ops.RmsNorm)],
)
def test_epsilon_as_it_stands_is_the_norms(name: str, norm: type) -> None:
    assert float(constants(load(name))["EPS"]) == norm(None, *[None] * (norm is ops.LayerNorm)).eps


def test_coefficients_of_erf_are_the_references() -> None:
    source = text("_activation")
    assert tuple(numbers(source, "p")) == activations.ERF_P
    assert tuple(numbers(source, "q")) == activations.ERF_Q


def test_noise_is_made_of_the_same_constants() -> None:
    hashed = re.findall(r"\b(\d{9,10})u\b", text("sample_token_partial"))
    assert hashed == ["747796405", "2891336453", "277803737"]
    shift, scale = re.findall(
        r">> (\d+)u;\n.*\+ 0\.5\) \* ([\d.e-]+)\)", text("sample_token_partial")
    )[0]
    assert (int(shift), float(scale)) == (9, 2**-23)
    assert list(sampling.counter_hash(1, 2, np.arange(3))) == [
        pcg(token ^ pcg(pcg(1) ^ 2)) for token in range(3)
    ]


def test_noise_is_finite_whatever_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A uniform number rounded up to 1 would be infinite noise: any token at all."""
    ends = np.array([0, 2**32 - 1], np.uint32)
    monkeypatch.setattr(sampling, "counter_hash", lambda seed, count, ids: ends)
    low, high = sampling.gumbel(0, 0, np.arange(2))
    assert -3 < low < 0 < 16 < high < 17


# -- on a device ----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_compiles_as_it_stands(device: Device, name: str) -> None:
    if "subgroups" not in device.features:
        pytest.skip("as they stand, kernels want subgroups")
    if name in MATRIX and "matrix" not in device.features:
        pytest.skip("no matrix units; tests/ops/test_matrix_units.py does what it can")
    assert PipelineCache(device).get(name).wait() is not None


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in WITH_FEATURES])
def test_every_kernel_compiles_without_any_feature(plain_gpu: Any, name: str) -> None:
    kernels, choices = PipelineCache(plain_gpu.device), choices_of(name)
    plain = {key: "shared" for key in ("ROW_REDUCE", "WORKGROUP_REDUCE") if key in choices}
    for weights in choices.get("WEIGHTS", ("",)):
        stored = {"WEIGHTS": weights} if weights else {}
        assert kernels.get(name, **plain, **stored).wait() is not None


@pytest.mark.gpu
def test_pipelines_are_made_once(device: Device) -> None:
    kernels = PipelineCache(device)
    first = kernels.get("gather_rows", LINES=1, WIDTH4=2)
    assert kernels.get("gather_rows", WIDTH4=2, LINES=1) is first
    assert kernels.get("gather_rows", WIDTH4=3, LINES=1) is not first


@pytest.mark.gpu
def test_a_kernel_the_driver_refuses_is_a_device_error_of_one_line(device: Device) -> None:
    with pytest.raises(DeviceError, match="refuses kernel gather_rows") as raised:
        Pipeline(device, "gather_rows", "@compute fn main() { nonsense }")
    assert "\n" not in str(raised.value)
    assert device.name in str(raised.value)
