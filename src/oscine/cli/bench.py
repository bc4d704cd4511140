"""`oscine bench`: measures a model on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from oscine import hub, registry
from oscine.bench import BenchSettings, DeviceLimits, Measurement, measure_limits, time_once
from oscine.cli.common import (
    Offline,
    Precision,
    Threads,
    check_device,
    load_model,
    set_threads,
    set_up_logging,
)
from oscine.cli.console import status, write_stdout
from oscine.cli.openai_style import OpenAIStyleCommand
from oscine.cli.parameters import parse_int
from oscine.errors import UsageError
from oscine.family import Family
from oscine.files import expand_user
from oscine.options.command import LoadOptions
from oscine.terminal import printable

app = typer.Typer(add_completion=False, rich_markup_mode=None)

GPU_BATCHES, HOST_BATCHES = (1, 4, 16), (1,)
GPU_SECONDS, HOST_SECONDS = 300.0, 30.0
REPEATS, MAX_BATCH, MIN_SECONDS, MAX_SECONDS = 5, 128, 0.1, 7200


@app.command(cls=OpenAIStyleCommand)
def bench(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A name of `oscine models list`, or a path."
            f"  [default: {registry.default_model('transcribe')}]",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="auto, cpu, gpu, gpu:N, or part of an adapter's name.",
        ),
    ] = "auto",
    dtype: Precision = "auto",
    batches: Annotated[
        str | None,
        typer.Option(
            "--batches",
            metavar="LIST",
            help="Batch sizes of steps, windows or voices.  [default: 1,4,16; in NumPy 1]",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="NUMBER",
            help="Length of the recording, which is made up.  [default: 300; in NumPy 30]",
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option("--repeats", metavar="NUMBER", help="Runs of which a value is the median."),
    ] = REPEATS,
    threads: Threads = None,
    offline: Offline = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure a model on this machine.

    Times of its parts (encoder, decoder step, frame of speech) at several batch sizes, the times
    real time of a whole recording or speech, and the time to load it. Shares are of the rates that
    a copy and a matrix product reach on the same device.
    """
    sizes = None if batches is None else parse_batches(batches)
    if not 1 <= repeats <= 1000:
        raise UsageError(f"--repeats must be 1 to 1000, not {repeats}")
    if seconds is not None and not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds must be {MIN_SECONDS} to {MAX_SECONDS}, not {seconds:g}")
    if device == "all":
        raise UsageError("bench measures one device: use gpu:N")
    check_device(device)
    set_threads(threads)
    set_up_logging(verbose=False)
    name = registry.default_model("transcribe") if model is None else model
    how = LoadOptions(device=device, dtype=dtype, offline=offline)
    report = measure(name, how, sizes, seconds, repeats)
    if as_json:
        write_stdout(json.dumps(report, indent=2) + "\n")
        return
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    with console.capture() as shown:
        print_report(report, console)
    write_stdout(shown.get())


def parse_batches(text: str) -> tuple[int, ...]:
    """Batch sizes of a list such as "1,4,16". Raises UsageError."""
    try:
        sizes = sorted({parse_int(part) for part in text.split(",")})
    except typer.BadParameter as problem:
        raise UsageError(f"--batches: {problem.message}") from None
    for size in sizes:
        if not 1 <= size <= MAX_BATCH:
            raise UsageError(f"--batches must be 1 to {MAX_BATCH}, not {size}")
    return tuple(sizes)


def measure(
    name: str,
    how: LoadOptions,
    batches: tuple[int, ...] | None,
    seconds: float | None,
    repeats: int,
) -> dict[str, Any]:
    """Load a model and measure it; the report as an object for JSON. None: by the device.

    Raises UsageError for a family without a benchmark, and the errors of oscine.load.
    """
    family = family_of(name, how)
    spent, loaded = time_once(lambda: load_model(name, how))
    backend = loaded.runner.backend
    settings = BenchSettings(
        batches or (GPU_BATCHES if backend.is_async else HOST_BATCHES),
        repeats,
        seconds or (GPU_SECONDS if backend.is_async else HOST_SECONDS),
    )
    status("measuring what the device reaches")
    limits: DeviceLimits = loaded.engine.call(lambda runner: measure_limits(runner.backend))
    cases = [found.to_dict(limits) for found in measurements(family, loaded, settings)]
    return {
        "model": loaded.name,
        "family": family.title,
        "device": loaded.device,
        "load_s": spent / 1000,
        "limits": limits.to_dict(),
        "cases": cases,
    }


def family_of(name: str, how: LoadOptions) -> Family:
    """The family of a model, which is downloaded if it is missing. Raises UsageError if the family
    has no benchmark."""
    from oscine.weights import read_checkpoint

    by_path = os.path.exists(expand_user(name))
    known = None if by_path else registry.find_model(name)
    if known is None:
        checkpoint = read_checkpoint(hub.resolve(name, offline=how.offline))
        family = registry.detect_family(checkpoint, None if by_path else name)
    else:
        family = known[0]
    if family.bench is None:
        raise UsageError(f"{name}: its family, {family.title}, has no benchmark")
    return family


def measurements(family: Family, model: Any, settings: BenchSettings) -> Iterator[Measurement]:
    """What a family measures of a model, each named on stderr as it is done."""
    assert family.bench is not None
    with registry.plugin_errors(family, "measure a model"):
        for found in family.bench()(model, settings):
            status(f"{found.case}, batch {found.batch}: {digits(found.ms)} ms a {found.per}")
            yield found


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print a report as text."""
    limits = report["limits"]
    products = [f"{digits(rate)} TFLOP/s {name}" for name, rate in limits["product_tflops"].items()]
    console.print(printable(f"{report['model']} on {report['device']}"))
    console.print(f"loaded in {report['load_s']:.2f} s")
    console.print(
        f"a copy reaches {digits(limits['bandwidth_gbs'])} GB/s, "
        f"a matrix product {', '.join(products)}\n"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("case", no_wrap=True)
    for heading in ("batch", "ms", "spread", "real time", "TFLOP/s", "GB/s"):
        table.add_column(heading, no_wrap=True, justify="right")
    for row in report["cases"]:
        spread = (row["spread_ms"][1] - row["spread_ms"][0]) / row["ms"]
        speed = f"{digits(row['times_real_time'])}x" if "times_real_time" in row else ""
        table.add_row(
            row_name(row), str(row["batch"]), digits(row["ms"]), f"{spread:.0%}",
            speed, rate_and_share(row, "tflops", "product_share"),
            rate_and_share(row, "bandwidth_gbs", "bandwidth_share"),
        )  # fmt: skip
    console.print(table)


def row_name(row: dict[str, Any]) -> str:
    """The case, and what its time is of where the name does not tell."""
    return row["case"] if row["case"] == row["per"] else f"{row['case']}, a {row['per']}"


def digits(value: float) -> str:
    """A value in three digits, or more before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def rate_and_share(row: dict[str, Any], rate: str, share: str) -> str:
    """A rate and its share of the device's, for a table; empty if it was not measured."""
    return f"{digits(row[rate])} ({row[share]:.0%})" if rate in row else ""
