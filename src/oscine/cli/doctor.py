"""`oscine doctor`: lists GPUs, names the backend in use, and checks its kernels against NumPy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from oscine.backends import (
    ALL,
    close,
    cpu_backend,
    failure_reasons,
    find_gpu,
    list_gpus,
    parse_device,
)
from oscine.cli.common import set_up_logging
from oscine.cli.console import warn, write_stdout
from oscine.cli.openai_style import OpenAIStyleCommand
from oscine.cli.option_names import use_flags
from oscine.errors import DeviceError, OscineError
from oscine.gpu import device as gpu_device
from oscine.gpu.device import Adapter
from oscine.ops import Backend
from oscine.ops.check import CASES, Result, run_case
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu
from oscine.terminal import printable
from oscine.tuning import load_thresholds, save_thresholds, tune

PROGRESS_S = 5.0  # between two lines of progress

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True)
class DeviceFallback:
    """The adapters that are tried for a device option, in order, and the one that is used."""

    steps: list[dict[str, Any]]
    adapter: Adapter | None  # the adapter that is used
    suspect: Adapter | None  # the first that failed, if none is used
    reason: str


def adapter_to_dict(adapter: Adapter) -> dict[str, Any]:
    """An adapter as an object for JSON."""
    return {
        "name": adapter.title,
        "kind": "software" if adapter.software else adapter.adapter_type,
        "implementation": adapter.implementation,
        "backend": adapter.backend_type,
        "identity": adapter.identity,
        "driver": adapter.driver,
        "features": sorted(adapter.features),
        "matrix_units": str(adapter.matrix_units) if adapter.matrix_units else None,
        "limits": adapter.limits,
    }


def trace_fallback(choice: str) -> DeviceFallback:
    """Choose a device for `choice` as the other commands do, and record each step."""
    if choice == "cpu":
        return DeviceFallback([cpu_step(used=True)], None, None, "requested")
    failed: dict[str, DeviceError] = {}
    try:
        candidates = gpu_device.candidates(choice)
    except DeviceError as none:
        last = [cpu_step(used=True)] if choice == "auto" else []
        return DeviceFallback(last, None, None, use_flags(f"{none}"))
    try:
        close(find_gpu(choice, failed))
        reason = "the first that passes its check: discrete before integrated, Dawn before wgpu"
    except DeviceError:
        reason = use_flags(failure_reasons(failed))
    steps, used = [], None
    for step in candidates:
        problem = failed.get(step.name)
        fits = used is None and problem is None
        used = step.adapter if fits else used
        steps.append(
            {
                "implementation": step.implementation,
                "adapter": step.adapter.title if step.adapter else None,
                "problem": use_flags(f"{problem or step.problem or ''}"),
                "used": fits,
            }
        )
    if choice == "auto":
        steps.append(cpu_step(used=used is None))
    if used and used.software:
        reason = "a software adapter, used only on request"
    suspect = None if used else next((s.adapter for s in candidates if s.adapter), None)
    return DeviceFallback(steps, used, suspect, reason)


def cpu_step(*, used: bool) -> dict[str, Any]:
    """The CPU as the last step, which cannot fail."""
    name = cpu_backend().name.lower()
    return {"implementation": name, "adapter": None, "problem": "", "used": used}


def is_gpu_missing(choice: str, adapter: object) -> bool:
    """Whether a GPU is required and none is usable; the other commands then fail."""
    return not adapter and choice not in ("auto", "cpu")


def check_kernels(adapter: Adapter) -> list[Result]:
    """Run every op case on an adapter; no results if it cannot be opened or fails meanwhile."""
    try:
        gpu = Gpu(gpu_device.open_device(adapter))
        gpu.thresholds = load_thresholds(adapter)
        return run_cases(gpu, adapter.title)
    except DeviceError:
        return []


def check_cpu() -> list[Result]:
    """Run every op case on the CPU, if its kernels are compiled; NumPy defines the ops."""
    backend = cpu_backend()
    return [] if type(backend) is Reference else run_cases(backend, backend.name)


def run_cases(backend: Backend, title: str) -> list[Result]:
    """Run every op case; a line on stderr tells how far it is, every PROGRESS_S seconds."""
    results: list[Result] = []
    shown = monotonic()
    for case in CASES:
        if monotonic() - shown >= PROGRESS_S:
            warn(f"{title}: {len(results)} of {len(CASES)} kernel checks are done")
            shown = monotonic()
        results.append(run_case(backend, case))
    return results


def tune_adapter(adapter: Adapter | None) -> dict[str, Any]:
    """Measure the tiles of an adapter and store them: the thresholds, what they save, a problem."""
    if adapter is None or adapter.software:
        return {"thresholds": None, "gains": {}, "problem": "only a hardware GPU is tuned"}
    warn(f"{adapter.title}: measuring products")
    try:
        gpu = Gpu(gpu_device.open_device(adapter))
        try:
            tuning = tune(gpu)
        finally:
            close(gpu)
        save_thresholds(adapter, tuning.thresholds)
    except OscineError as problem:
        return {"thresholds": None, "gains": {}, "problem": str(problem)}
    return {"thresholds": asdict(tuning.thresholds), "gains": dict(tuning.gains), "problem": ""}


def build_report(choice: str, with_tuning: bool = False) -> dict[str, Any]:
    """The report for `choice` as an object for JSON; with a tuning of a GPU that is right."""
    chain = trace_fallback(choice)
    examined = chain.adapter or chain.suspect
    results = check_kernels(examined) if examined else check_cpu()
    right = all(result.passed for result in results) and bool(results or not examined)
    loads = {name: import_problem(name) for name in gpu_device.PACKAGES}
    return {
        "adapters": [
            adapter_to_dict(a) for name in gpu_device.implementations() for a in list_adapters(name)
        ],
        "implementations": {name: not problem for name, problem in loads.items()},
        "unloadable": {name: problem for name, problem in loads.items() if problem},
        "chain": chain.steps,
        "chosen": adapter_to_dict(chain.adapter) if chain.adapter else None,
        "reason": chain.reason,
        "kernels": [
            {
                "case": r.case.name,
                "kernels": list(r.kernels),
                "error": r.error if r.error != float("inf") else None,
                "limit": r.limit,
                "passed": r.passed,
            }
            for r in results
        ],
        "tuning": tune_adapter(chain.adapter if right else None) if with_tuning else None,
        "verdict": verdict(choice, chain, right),
        "passed": right and not (is_gpu_missing(choice, chain.adapter) or chain.suspect),
    }


def verdict(choice: str, chain: DeviceFallback, right: bool) -> str:
    """The conclusion in one line; `right`: whether every kernel agrees with NumPy."""
    examined = chain.adapter or chain.suspect
    if examined:
        if right and chain.adapter:
            return f"{examined.title} computes what NumPy computes"
        if right:
            return f"{examined.title} cannot be used: use --device cpu"
        return f"{examined.title} does NOT compute what NumPy computes: use --device cpu"
    if not is_gpu_missing(choice, None):
        if not right:
            return "the CPU does NOT compute what NumPy computes: set OSCINE_CPU=numpy"
        return f"no usable GPU: oscine runs on the CPU with {cpu_backend().name}"
    by_variable = gpu_device.format_choice(choice).startswith("OSCINE_DEVICE")
    remedy = "unset OSCINE_DEVICE or use" if by_variable else "use --device auto or"
    return f"the requested GPU was not found: {remedy} --device cpu"


def import_problem(implementation: str) -> str:
    """Why a WebGPU implementation cannot be used; empty if it can."""
    package = gpu_device.PACKAGES[implementation]
    if not gpu_device.installed(implementation):
        return f"the package {package} is not installed"
    try:
        gpu_device.load_webgpu(implementation)
    except DeviceError as problem:
        return str(problem)
    return ""


def list_adapters(implementation: str) -> list[Adapter]:
    """The adapters of a WebGPU implementation; none if it cannot list them."""
    try:
        return gpu_device.adapters(implementation)
    except DeviceError:
        return []


def make_printable(found: Any) -> Any:
    """A copy of a report in which all text is printable: names come from drivers."""
    if isinstance(found, str):
        return printable(found)
    if isinstance(found, list):
        return [make_printable(each) for each in found]
    if isinstance(found, dict):
        return {make_printable(key): make_printable(value) for key, value in found.items()}
    return found


def print_report(found: dict[str, Any], choice: str, console: Console) -> None:
    """Print a report as text."""
    adapters = Table("adapter", "kind", "API", "implementation", "driver", box=None)
    for a in found["adapters"]:
        adapters.add_row(a["name"], a["kind"], a["backend"], a["implementation"], a["driver"])
    console.print(adapters if found["adapters"] else "No WebGPU adapter.")
    for name, problem in found["unloadable"].items():
        console.print(f"{name}: {problem}")
    console.print("\ntried, in order:")
    for step in found["chain"]:
        tried = f"{step['implementation']}: {step['adapter'] or ''}".removesuffix(": ")
        outcome = "used" if step["used"] else step["problem"] or "not needed"
        console.print(f"  {tried}: {outcome}")
    chosen = found["chosen"]
    taken = "nothing" if is_gpu_missing(choice, chosen) else cpu_backend().name
    console.print(f"\nchosen: {chosen['name'] if chosen else taken}: {found['reason']}")
    if chosen:
        console.print(f"features: {', '.join(chosen['features']) or 'none'}")
        if chosen["matrix_units"]:
            console.print(f"matrix units: {chosen['matrix_units']}")
        limits = ", ".join(f"{name} {value}" for name, value in chosen["limits"].items())
        console.print(f"limits: {limits}")
    if found["kernels"]:
        table = Table("case", "kernels", "difference", "limit", "", box=None)
        for row in found["kernels"]:
            error = "not equal" if row["error"] is None else f"{row['error']:.1e}"
            mark = "ok" if row["passed"] else "FAILED"
            table.add_row(
                row["case"], ", ".join(row["kernels"]), error, f"{row['limit']:.0e}", mark
            )
        console.print("", table)
    if found["tuning"]:
        console.print(f"\ntuning: {describe_tuning(found['tuning'])}")
    console.print(f"\n{found['verdict']}")


def describe_tuning(tuning: dict[str, Any]) -> str:
    """What was tuned, in one line."""
    gains = [
        f"{name} {tuning['thresholds'][name]} takes {gain:.0%} less time"
        for name, gain in tuning["gains"].items()
    ]
    return tuning["problem"] or ", ".join(gains) or "the default tiles are the fastest"


@app.command(cls=OpenAIStyleCommand)
def doctor(
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="auto, gpu (software adapters too), gpu:N, all, or part of an adapter name.",
        ),
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    with_tuning: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Also measure which tiles of matrix products are fastest on the GPU, and use them "
            "from now on.",
        ),
    ] = False,
) -> None:
    """Check the GPUs, or the CPU's kernels, against NumPy.

    Lists the GPU adapters, shows which one is used and why, and compares the results of its
    kernels with NumPy. Without a GPU, and with --device cpu, the kernels that the extra [cpu] has
    compiled are checked. With --device all, each GPU is checked. The exit code is 1 if a kernel
    gives wrong results, the requested GPU is missing, or --tune could not be done.
    """
    wanted = parse_device(device)
    set_up_logging(verbose=False)
    choices = list_gpus() if wanted == ALL else [wanted]
    reports = {choice: build_report(choice, with_tuning) for choice in choices}
    if as_json:
        write_stdout(json.dumps(reports if wanted == ALL else reports[wanted], indent=2) + "\n")
    else:
        console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        with console.capture() as shown:
            for choice, found in reports.items():
                print_report(make_printable(found), choice, console)
        write_stdout(shown.get())
    tunings = [found["tuning"] for found in reports.values() if found["tuning"]]
    if not all(found["passed"] for found in reports.values()) or any(
        tuning["problem"] for tuning in tunings
    ):
        raise typer.Exit(1)
