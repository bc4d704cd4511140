"""Kernels as files: ordinary WGSL whose parameters are its own top-level const and alias lines.

A kernel is a file in a folder of `oscine.kernels`, found by its name alone. A parameter is changed
by rewriting its line, so a kernel compiles as it is in the file and an editor can check it.
`// use _name` pastes shared text. `// use _weights_f32 for WEIGHTS: f32, f16, bf16` pastes the text
that the parameter WEIGHTS chooses; `_weights_f32` is the default. A name that the kernel does not
have, and a value that it does not list, are errors.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from oscine.gpu.device import Device
from oscine.gpu.matrix_units import LANES
from oscine.threads import available_cores

USE_PATTERN = re.compile(
    r"^// use (?P<part>\w+)(?: for (?P<parameter>\w+): (?P<values>.+))?$", re.MULTILINE
)
#: Lines that Tint demands and naga refuses, or has no use for: f16 goes with matrix units.
TINT_ONLY_PATTERN = re.compile(
    r"^(enable (subgroups|f16|subgroup_size_control|chromium_experimental_subgroup_matrix)"
    r"|diagnostic\(off, (chromium\.subgroup_matrix|subgroup)_uniformity\));\n",
    re.MULTILINE,
)

MATRIX_DIRECTIVE = "enable chromium_experimental_subgroup_matrix;"

Parameter = bool | int | float | str


@cache
def kernel_files() -> dict[str, Traversable]:
    """Every WGSL file of every folder by its name without the suffix; shared text begins with _."""
    folders = [folder for folder in files("oscine.kernels").iterdir() if folder.is_dir()]
    found = [file for folder in folders for file in folder.iterdir()]
    return {file.name[:-5]: file for file in found if file.name.endswith(".wgsl")}


@cache
def source_of(name: str) -> str:
    """The text of one file. Raises FileNotFoundError where no folder has it."""
    if name not in kernel_files():
        raise FileNotFoundError(f"no kernel {name}")
    return kernel_files()[name].read_text(encoding="utf-8")


def choices_of(name: str) -> dict[str, tuple[str, ...]]:
    """The values of each parameter that chooses a text in a kernel or in its shared texts."""
    found: dict[str, tuple[str, ...]] = {}
    for use in USE_PATTERN.finditer(source_of(name)):
        if use["parameter"]:
            found[use["parameter"]] = tuple(use["values"].split(", "))
        found = choices_of(use["part"]) | found
    return found


def text(name: str, **chosen: str) -> str:
    """The file with its `use` lines replaced by the texts they name, recursively."""

    def paste(use: re.Match[str]) -> str:
        part = use["part"]
        if use["parameter"] in chosen:
            part = f"{part.rpartition('_')[0]}_{chosen[use['parameter']]}"
        return text(part, **chosen)

    return USE_PATTERN.sub(paste, source_of(name))


def to_wgsl(value: Parameter) -> str:
    """A Python value as WGSL."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(name: str, **parameters: Parameter) -> str:
    """The kernel's source with its parameters set. Raises KeyError for an unknown one."""
    choices = choices_of(name)
    chosen = {key: str(value) for key, value in parameters.items() if key in choices}
    for key, value in chosen.items():
        if value not in choices[key]:
            raise KeyError(f"kernel {name} has no {value} for {key}: {', '.join(choices[key])}")
    source = text(name, **chosen)
    for key in parameters.keys() - chosen.keys():
        line = re.compile(rf"^((?:const {key}: \w+|alias {key}) = )[^;]+;", re.MULTILINE)
        source, count = line.subn(rf"\g<1>{to_wgsl(parameters[key])};", source)
        if count != 1:
            raise KeyError(f"kernel {name} has no parameter {key}")
    return source


def request_lanes(source: str, lanes: int) -> str:
    """The source of a kernel that runs in subgroups of that many lanes, on a device with others."""
    entry = f"@compute @subgroup_size({lanes})"
    return "enable subgroup_size_control;\n" + source.replace("@compute", entry)


def adapt_to_compiler(source: str, implementation: str) -> str:
    """The source for naga (wgpu), without the directives of Tint alone, or for Tint (Dawn)."""
    if implementation == "wgpu":
        return TINT_ONLY_PATTERN.sub("", source)
    heads = [match[0] for match in TINT_ONLY_PATTERN.finditer(source)]
    return "".join(dict.fromkeys(heads)) + TINT_ONLY_PATTERN.sub("", source)


class Pipeline:
    """A compute pipeline, which Dawn compiles in a thread of its own; wgpu has no call for that."""

    def __init__(self, device: Device, name: str, source: str) -> None:
        """Begin to compile a kernel. Raises DeviceError where its source is refused."""
        self.device, self.name = device, name
        self.handle: Any = None
        in_background = device.adapter.implementation == "dawn"
        create = "create_compute_pipeline_async" if in_background else "create_compute_pipeline"
        try:
            compute = {"module": device.compile(name, source), "entry_point": "main"}
            made = getattr(device.handle, create)(label=name, layout="auto", compute=compute)
        except device.error_types as problem:
            raise device.wrap_error(problem, f"refuses kernel {name}") from problem
        if in_background:
            self.promise = made
        else:
            self.handle = made

    def wait(self) -> Any:
        """The compiled pipeline of WebGPU.

        Raises DeviceError where the driver refuses the kernel, as for its shared memory.
        """
        if self.handle is None:
            self.device.raise_if_lost()
            try:
                self.handle = self.device.wait(self.promise)
            except self.device.error_types as problem:
                doing = f"refuses kernel {self.name}"
                raise self.device.wrap_error(problem, doing) from problem
        return self.handle


class PipelineCache:
    """The compute pipelines of one device; each variant of a kernel is compiled once.

    They compile side by side, in twice as many threads as there are cores.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.compiled: dict[tuple[str, tuple[tuple[str, Parameter], ...]], Pipeline] = {}
        self.compiling: deque[Pipeline] = deque()
        self.max_compiling = 2 * available_cores()

    def get(self, name: str, **parameters: Parameter) -> Pipeline:
        """The compute pipeline of a kernel with these parameters, which may still be compiling.

        Raises DeviceError, KeyError.
        """
        key = name, tuple(sorted(parameters.items()))
        if key not in self.compiled:
            source, units = load(name, **parameters), self.device.adapter.matrix_units
            if units is not None and units.request_lanes and MATRIX_DIRECTIVE in source:
                source = request_lanes(source, LANES)
            source = adapt_to_compiler(source, self.device.adapter.implementation)
            if len(self.compiling) >= self.max_compiling:
                self.compiling.popleft().wait()
            self.compiled[key] = Pipeline(self.device, name, source)
            self.compiling.append(self.compiled[key])
        return self.compiled[key]

    def finish(self) -> None:
        """Wait until all pipelines are compiled. Raises DeviceError."""
        while self.compiling:
            self.compiling.popleft().wait()
