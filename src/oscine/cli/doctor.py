"""`oscine doctor`: what GPUs there are, which would be used and why, and whether it is right."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from oscine.backends import wanted_device
from oscine.cli.console import emit
from oscine.cli.engine import start_log
from oscine.cli.openai_style import OpenAIStyle
from oscine.errors import DeviceError
from oscine.gpu import device as gpu_device
from oscine.gpu.device import Adapter
from oscine.ops.check import CASES, Result, run_case
from oscine.ops.gpu import Gpu
from oscine.terminal import printable

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def describe(adapter: Adapter) -> dict[str, Any]:
    """An adapter for JSON."""
    return {
        "name": adapter.name,
        "kind": "software" if adapter.software else adapter.kind,
        "implementation": adapter.implementation,
        "backend": adapter.backend,
        "driver": adapter.driver,
        "features": sorted(adapter.features),
        "limits": adapter.limits,
    }


def decide(choice: str) -> tuple[Adapter | None, str]:
    """The adapter that `choice` takes, and why."""
    if choice == "cpu":
        return None, "asked for"
    try:
        adapter = gpu_device.choose(choice)
    except DeviceError as problem:
        return None, f"{problem}"
    order = "Dawn before wgpu where both are installed; OSCINE_WEBGPU names one"
    if adapter.software:
        return adapter, "a software adapter, taken only because it was asked for"
    return adapter, f"the best hardware adapter: discrete before integrated; {order}"


def lacks_adapter(choice: str, adapter: object) -> bool:
    """Whether a GPU is asked for and none is chosen, where the other commands stop."""
    return not adapter and choice not in ("auto", "cpu")


def check_kernels(adapter: Adapter) -> list[Result]:
    """Every case on the adapter."""
    gpu = Gpu(gpu_device.open_device(adapter))
    return [run_case(gpu, case) for case in CASES]


def report(choice: str) -> dict[str, Any]:
    """Everything the doctor knows."""
    seen = [a for name in gpu_device.implementations() for a in gpu_device.adapters(name)]
    adapter, reason = decide(choice)
    results = check_kernels(adapter) if adapter else []
    passed = all(result.passed for result in results)
    lacking = lacks_adapter(choice, adapter)
    if lacking:
        by_variable = not gpu_device.said(choice).startswith("--device")
        remedy = "unset OSCINE_DEVICE or use" if by_variable else "use --device auto or"
        verdict = f"the GPU asked for is not there: {remedy} --device cpu"
    elif adapter is None:
        verdict = "no GPU to use: oscine runs on the CPU, in NumPy"
    elif passed:
        verdict = f"{adapter.name} computes what NumPy computes"
    else:
        verdict = f"{adapter.name} does NOT compute what NumPy computes: use --device cpu"
    return {
        "adapters": [describe(a) for a in seen],
        "implementations": {
            name: gpu_device.load_api(name) is not None for name in gpu_device.MODULES
        },
        "chosen": describe(adapter) if adapter else None,
        "reason": reason,
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
        "verdict": verdict,
        "passed": passed and not lacking,
    }


def all_printable(found: Any) -> Any:
    """The same with each text in it printable: a driver may call itself anything."""
    if isinstance(found, str):
        return printable(found)
    if isinstance(found, list):
        return [all_printable(each) for each in found]
    if isinstance(found, dict):
        return {all_printable(key): all_printable(value) for key, value in found.items()}
    return found


def show(found: dict[str, Any], choice: str, console: Console) -> None:
    """The report for people."""
    adapters = Table("adapter", "kind", "API", "implementation", "driver", box=None)
    for a in found["adapters"]:
        adapters.add_row(a["name"], a["kind"], a["backend"], a["implementation"], a["driver"])
    console.print(adapters if found["adapters"] else "No WebGPU adapter.")
    missing = [name for name, there in found["implementations"].items() if not there]
    for name in missing:
        extra = " (pip install 'wgpudawn>=0.32')" if name == "dawn" else ""
        console.print(f"{name} is not installed or does not load{extra}")
    chosen = found["chosen"]
    taken = "nothing" if lacks_adapter(choice, chosen) else "NumPy"
    console.print(f"\nchosen: {chosen['name'] if chosen else taken}: {found['reason']}")
    if chosen:
        console.print(f"features: {', '.join(chosen['features']) or 'none'}")
        limits = ", ".join(f"{name} {value}" for name, value in chosen["limits"].items())
        console.print(f"limits: {limits}\n")
        table = Table("case", "kernels", "difference", "limit", "", box=None)
        for row in found["kernels"]:
            error = "not equal" if row["error"] is None else f"{row['error']:.1e}"
            mark = "ok" if row["passed"] else "FAILED"
            table.add_row(
                row["case"], ", ".join(row["kernels"]), error, f"{row['limit']:.0e}", mark
            )
        console.print(table)
    console.print(f"\n{found['verdict']}")


@app.command(cls=OpenAIStyle)
def doctor(
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="auto, gpu (a software one too), gpu:N or part of a name.",
        ),
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check this machine's GPUs against NumPy.

    It lists the adapters, says which one is used and why, and compares every kernel with NumPy.
    Exit code 1 if the chosen adapter computes anything wrong, or the one asked for is not there.
    """
    choice = wanted_device(device)
    start_log(verbose=False)
    found = report(choice)
    if as_json:
        emit(json.dumps(found, indent=2) + "\n")
    else:
        console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        with console.capture() as shown:
            show(all_printable(found), choice, console)
        emit(shown.get())
    if not found["passed"]:
        raise typer.Exit(1)
