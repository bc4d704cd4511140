"""Compiles the kernels once for a machine, stores the machine code, and loads it.

Numba compiles them, which takes seconds; loading needs only llvmlite, without Numba's quarter of a
second of imports. The machine code is for one processor, one version of the kernels, of Numba and
of Python: its file name is a hash of them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

import llvmlite.binding as llvm

from oscine.files import temp_path

log = logging.getLogger(__name__)

KERNELS = (
    *("linear_f32", "linear_f16", "linear_bf16", "linear_q8", "linear_q4", "finish_rows", "norm"),
    *("widen_f16", "widen_bf16", "widen_q8", "widen_q4", "softmax_weights", "attend_any"),
    *("attend_64", "choose", "count_nonfinite", "divide", "join"),
)
SOURCES = ("lowering.py", "vectors.py", "kernels.py", "words.py", "../reference/activations.py")
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Library:
    """The kernels as functions: `address[name]`, and `call[name](words, start, stop)`.

    Calls release the GIL. The machine code lives as long as the library.
    """

    def __init__(self, folder: Path) -> None:
        """Load the machine code from a folder, or compile it and store it there.

        Raises RuntimeError where the processor has no instruction for what the kernels need: a
        missing function would end the process.
        """
        if not has_half_conversion():
            raise RuntimeError("this processor has no conversion of float16")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._machine = target_machine()
        path = folder / f"{cache_key()}.kernels"
        stored = read_stored(path)
        names, code = compile_and_store(path, self._machine) if stored is None else stored
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self.address = {
            name: self._engine.get_function_address(symbol) for name, symbol in names.items()
        }
        self.call = {name: KERNEL(address) for name, address in self.address.items()}


def has_half_conversion() -> bool:
    """Whether this processor converts float16; for another LLVM would call a missing function."""
    machine = llvm.get_default_triple().partition("-")[0]
    return bool(machine in ("aarch64", "arm64") or llvm.get_host_cpu_features().get("f16c"))


def target_machine() -> Any:
    """The present processor, for which LLVM makes code."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )


def cache_key() -> str:
    """A hash of everything that the machine code depends on."""
    here = Path(__file__).parent
    parts = [
        *(version(package) for package in ("numba", "llvmlite")),
        *(llvm.get_default_triple(), llvm.get_host_cpu_name()),
        *(llvm.get_host_cpu_features().flatten(), sys.version),
    ]
    digest = hashlib.sha256("\n".join(parts).encode())
    for source in SOURCES:
        digest.update((here / source).read_bytes())
    return digest.hexdigest()[:32]


def read_stored(path: Path) -> tuple[dict[str, str], bytes] | None:
    """The symbols of the kernels, and the machine code; None if the file is missing or damaged."""
    try:
        digest, _, stored = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(stored).hexdigest().encode() != digest:  # of the symbols too: a wrong one has
        return None  # no address, and a call of it ends the process
    symbols, _, code = stored.partition(b"\n")
    return json.loads(symbols), code


def compile_and_store(path: Path, machine: Any) -> tuple[dict[str, str], bytes]:
    """Compile the kernels and store them; without a folder to write to, they are not stored."""
    log.info("compiling the kernels for this processor, once")
    started = monotonic()
    symbols, code = compile_kernels(machine)
    stored = json.dumps(symbols).encode() + b"\n" + code
    part = temp_path(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(hashlib.sha256(stored).hexdigest().encode() + b"\n" + stored)
        part.replace(path)  # processes that compile at once write the same
    except OSError as problem:
        log.warning("the compiled kernels are not stored: %s", problem)
    finally:
        with suppress(OSError):
            part.unlink()  # of a disk that is full, or of an interrupt
    log.info("compiled in %.1f s", monotonic() - started)
    return symbols, code


def compile_kernels(machine: Any) -> tuple[dict[str, str], bytes]:
    """The symbol of each kernel, and machine code for all of them."""
    from oscine.ops.compiled import kernels

    compiled = {name: getattr(kernels, name) for name in KERNELS}
    symbols = {name: function.native_name for name, function in compiled.items()}
    module = llvm.parse_assembly("")
    for function in compiled.values():
        module.link_in(llvm.parse_assembly(function.inspect_llvm()))
    remove_error_paths(module, set(symbols.values()), machine)
    return symbols, machine.emit_object(module)


def remove_error_paths(module: Any, exported: set[str], machine: Any) -> None:
    """Optimise a module, after which no kernel needs Numba's runtime: none of them can fail.

    Raises RuntimeError where one needs a function that is not in the module.
    """
    for function in module.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    missing = [f.name for f in module.functions if f.is_declaration and "llvm." not in f.name]
    if missing:
        raise RuntimeError(f"the kernels need {', '.join(missing)}")
