"""Loads a model: opens its checkpoint, detects its family and makes its runner on a device."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import Any, Generic

from oscine import hub, registry
from oscine.backends import (
    ALL,
    build_with_fallback,
    choose_backend,
    close,
    fall_back_to_cpu,
    list_gpus,
    parse_device,
    reopen,
)
from oscine.budget import MemoryLimit
from oscine.errors import (
    CheckpointError,
    DeviceError,
    MemoryBudgetError,
    UsageError,
)
from oscine.family import LoadContext, Network, WeightsT
from oscine.files import expand_user
from oscine.fleet.model import open_fleet
from oscine.model_runner import RunnerT
from oscine.models.base_model import Model
from oscine.models.loader import DTYPES
from oscine.notebook import DownloadBars
from oscine.ops import Backend
from oscine.ops.sizing import bytes_needed
from oscine.quantized import is_quantized
from oscine.tree import tree_leaves
from oscine.weights import read_checkpoint

log = logging.getLogger(__name__)


def load(
    model: str | Path | None,
    device: str = "auto",
    dtype: str = "auto",
    *,
    offline: bool = False,
    progress: bool = False,
    deterministic: bool = False,
    memory: str | int | None = None,
) -> Model[Any]:
    """Load a model by name or path; oscine.load documents the arguments and errors."""
    limit = None if memory is None else MemoryLimit.of(memory)
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    name = str(model or registry.default_model("transcribe"))
    path = hub.resolve(name, offline=offline, progress=DownloadBars() if progress else None)
    wanted = parse_device(device)
    # The requested device: `auto` may be another device where the pickle is loaded.
    source = os.path.abspath(path) if os.path.exists(expand_user(name)) else name
    loaded: Model[Any]
    try:
        if wanted == ALL:
            loaded = open_fleet(
                list_gpus(),
                source,
                dtype,
                offline=offline,
                deterministic=deterministic,
                memory=memory,
            )
        else:
            backend = choose_backend(wanted)
            loaded = load_path(path, name, backend, wanted, dtype, offline=offline, limit=limit)
            if deterministic:
                loaded.engine.fix_rows()
    except CheckpointError as error:
        if os.path.exists(expand_user(name)):
            raise
        mend = f"`oscine models pull {name} --check` fetches what is damaged again"
        remedy = f"{error.remedy}; {mend}" if error.remedy else mend
        raise CheckpointError(error.path, error.problem, remedy) from error
    loaded._reopen = partial(
        load, source, device, dtype, offline=offline, deterministic=deterministic, memory=memory
    )
    return loaded


def load_path(
    path: Path,
    given: str,
    backend: Backend,
    device: str,
    dtype: str,
    *,
    offline: bool,
    limit: MemoryLimit | None = None,
) -> Model[Any]:
    """The model in a folder or file, `given` by that path or a name. Raises as oscine.load."""
    checkpoint = read_checkpoint(path)
    by_path = os.path.exists(expand_user(given))
    name = model_name(path) if by_path else given
    family = registry.detect_family(checkpoint, None if by_path else given)
    network = registry.network_of(family)
    with registry.plugin_errors(family, f"load {path}"):
        weights = network.load_weights(checkpoint, dtype)
        runner = build_with_fallback(partial(make_runner, network, weights, limit), backend, device)
        rebuild = RunnerFactory(network, resolved(path), dtype, device, runner, limit)
        model = network.model(runner, weights, LoadContext(given, name, offline, rebuild))
        if not isinstance(model, Model):
            raise TypeError(f"its model is of type {type(model).__name__}, not a Model")
    return model


def make_runner(
    network: Network[WeightsT, RunnerT],
    weights: WeightsT,
    limit: MemoryLimit | None,
    backend: Backend,
) -> RunnerT:
    """The runner on a backend, whose memory is limited from its weights on.

    Raises MemoryBudgetError with what the runner needs as far as that is known beforehand.
    """
    if limit is not None:
        backend.budget.set_limit(limit)
    before = backend.budget.used
    try:
        runner = network.runner(weights, backend)
        backend.finish_compiling()
        if not backend.reads_blocks and in_blocks(weights):
            log.warning("%s widens 8-bit and 4-bit weights to float32, 4 bytes each", backend.name)
        return runner
    except MemoryBudgetError as problem:
        needed = before + bytes_needed(partial(network.runner, weights), backend)
        raise backend.budget.too_small(max(needed, problem.needed)) from None


def in_blocks(weights: Any) -> bool:
    """Whether a network has weights in blocks of 8 or 4 bits."""
    return any(is_quantized(array.dtype) for array in tree_leaves(weights))


def model_name(path: Path) -> str:
    """The name of a model in a folder or file: the folder's, or the file's without its suffix."""
    named = Path(os.path.abspath(path))
    return named.name if path.is_dir() else named.stem


def resolved(path: Path) -> Path:
    """An absolute path that stays valid if the current folder, or a link to a folder, changes.

    A file that is a link is not resolved: its configuration is beside the link, as in a Hub's
    cache.
    """
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


class RunnerFactory(Generic[WeightsT, RunnerT]):
    """Makes a model's runner again after its device was lost: on the device, else with NumPy.

    The weights are read from their file again, so that no copy is kept in memory.
    """

    def __init__(
        self,
        network: Network[WeightsT, RunnerT],
        path: Path,
        dtype: str,
        device: str,
        runner: RunnerT,
        limit: MemoryLimit | None = None,
    ) -> None:
        """`runner`: the current runner."""
        self.network, self.path, self.dtype, self.device = network, path, dtype, device
        self.limit, self.runner = limit, runner

    def __call__(self) -> RunnerT:
        """The new runner; the old one cannot be used any more.

        The device is chosen as before, unless it was lost more than MAX_LOSSES times: NumPy then
        replaces it, with a warning.
        Raises CheckpointError if the file can no longer be read.
        """
        lost = self.runner
        close(lost.backend)  # a lost device holds its memory until then
        weights = self.network.load_weights(read_checkpoint(self.path), self.dtype)
        make = partial(make_runner, self.network, weights, self.limit)
        try:
            self.runner = build_with_fallback(make, reopen(lost.device, self.device), self.device)
        except MemoryBudgetError:
            raise
        except DeviceError as problem:
            self.runner = make(fall_back_to_cpu(lost.device, problem))
        return self.runner
