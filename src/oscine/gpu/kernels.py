"""Kernels as files: ordinary WGSL whose parameters are its own top-level const and alias lines.

A parameter is changed by rewriting its line, so a kernel compiles as it stands and an editor can
check it. `// use _name` pastes shared text. A name that the file does not have is an error.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from oscine.gpu.device import Device

USE = re.compile(r"^// use (\w+)$", re.MULTILINE)
#: Lines that Tint demands and naga refuses, or has no use for: f16 goes with matrix units.
TINT_ONLY = re.compile(
    r"^(enable (subgroups|f16|chromium_experimental_subgroup_matrix)"
    r"|diagnostic\(off, (chromium\.subgroup_matrix|subgroup)_uniformity\));\n",
    re.MULTILINE,
)

Parameter = bool | int | float | str


@cache
def text(name: str, *choices: str) -> str:
    """The file, its `use` lines pasted; a choice replaces the default that begins like it."""
    source = files("oscine.kernels").joinpath(f"{name}.wgsl").read_text(encoding="utf-8")
    chosen = {choice.rpartition("_")[0]: choice for choice in choices}

    def paste(match: re.Match[str]) -> str:
        return text(chosen.get(match[1].rpartition("_")[0], match[1]), *choices)

    return USE.sub(paste, source)


def spell(value: Parameter) -> str:
    """A Python value as WGSL."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(name: str, **parameters: Parameter) -> str:
    """The kernel with its parameters set.

    Five parameters choose between shared texts: TEAM, who works together on a row (subgroup, block
    or workgroup), BLOCK, how a workgroup sums or exchanges (subgroup or workgroup), WEIGHTS, what
    weights are stored as (f32, f16 or bf16), WIDE, how many of them a lane loads at once (four, or
    eight of two bytes), and STORE_HALF, whether results are stored as float16.
    """
    team, block = parameters.pop("TEAM", "subgroup"), parameters.pop("BLOCK", "subgroup")
    weights, wide = parameters.pop("WEIGHTS", "f32"), parameters.pop("WIDE", "four")
    stored = "f16" if parameters.pop("STORE_HALF", False) else "f32"
    choices = f"_weights_{weights}", f"_load_{wide}", f"_store_{stored}"
    source = text(name, f"_team_{team}", f"_block_{block}", f"_shuffle_{block}", *choices)
    for key, value in parameters.items():
        line = re.compile(rf"^((?:const {key}: \w+|alias {key}) = )[^;]+;", re.MULTILINE)
        source, count = line.subn(rf"\g<1>{spell(value)};", source)
        if count != 1:
            raise KeyError(f"kernel {name} has no parameter {key}")
    return source


def for_implementation(source: str, implementation: str) -> str:
    """The source as naga or Tint wants it: `enable` lines first, Tint's own only for Tint."""
    if implementation == "wgpu":
        return TINT_ONLY.sub("", source)
    heads = [match[0] for match in TINT_ONLY.finditer(source)]
    return "".join(dict.fromkeys(heads)) + TINT_ONLY.sub("", source)


class Kernels:
    """Compiled pipelines of one device, each made once."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.made: dict[tuple[str, tuple[tuple[str, Parameter], ...]], object] = {}

    def pipeline(self, name: str, **parameters: Parameter) -> object:
        """The compute pipeline of a kernel's variant."""
        key = name, tuple(sorted(parameters.items()))
        if key not in self.made:
            source = for_implementation(
                load(name, **parameters), self.device.adapter.implementation
            )
            self.made[key] = self.compile(name, source)
        return self.made[key]

    def compile(self, name: str, source: str) -> object:
        """The pipeline; DeviceError where the driver refuses it, as for want of shared memory."""
        try:
            module = self.device.compile(name, source)
            return self.device.handle.create_compute_pipeline(
                label=name, layout="auto", compute={"module": module, "entry_point": "main"}
            )
        except self.device.error_types as problem:
            raise self.device.wrap_error(problem, f"refuses kernel {name}") from problem
