#!/usr/bin/env python3
"""Hold oscine against goldens: every case below a folder, on NumPy or on a GPU.

Usage: check_golden.py DIR [--device cpu|gpu|gpu:N|NAME] [--family whisper|parakeet|qwen3_tts]

A case is a folder with golden.json, as tools/goldens/*.py write it. Prints each array's largest
difference with its limit and each token sequence's equality. Exit code: 0 all hold, 1 a miss,
2 misuse.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from checks import parakeet, qwen3_tts, whisper
from checks.report import Report

from oscine.errors import OscineError
from oscine.ops import Backend

FAMILIES = ("whisper", "parakeet", "qwen3_tts")
CHECKS = {"whisper": whisper.check, "parakeet": parakeet.check, "qwen3_tts": qwen3_tts.check}


def family_of(folder: Path) -> str | None:
    """Which model a case is of: the model_type of the first configuration in or below it."""
    if (folder / "meta.json").is_file():
        return "qwen3_tts"
    for config in sorted(folder.rglob("config.json"), key=lambda path: len(path.parts)):
        kind = str(json.loads(config.read_text("utf-8")).get("model_type", ""))
        for family in FAMILIES:
            if kind.startswith(family):
                return family
    return None


def cases(folder: Path, family: str | None) -> list[tuple[Path, str | None]]:
    """Every case at or below a folder, of one family where one is asked for."""
    found = {path.parent for name in ("golden.json", "meta.json") for path in folder.rglob(name)}
    sorted_cases = [(case, family_of(case)) for case in sorted(found)]
    return [(case, kind) for case, kind in sorted_cases if family in (None, kind)]


def open_backend(device: str) -> Backend:
    """NumPy, or the adapter that the name stands for."""
    if device == "cpu":
        from oscine.ops.reference import Reference

        return Reference()
    from oscine.gpu.device import open_device, select_adapter
    from oscine.ops.webgpu import Gpu

    return Gpu(open_device(select_adapter(device)))


def main(arguments: list[str] | None = None) -> int:
    """Compare; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--device", default="cpu", help="cpu, gpu, gpu:N or part of a name")
    parser.add_argument("--family", choices=FAMILIES, help="only this family's cases")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    found = cases(options.folder, options.family)
    if not found:
        parser.error(
            f"{options.folder} holds no case" + (f" of {options.family}" if options.family else "")
        )
    try:
        backend = open_backend(options.device)
    except OscineError as error:
        parser.error(str(error))
    print(f"device: {backend.name}")
    report = Report(cosines=options.device != "cpu", matrix=bool(getattr(backend, "matrix", None)))
    for case, family in found:
        if family not in CHECKS:
            report.begin(case.name, family or "of no known family")
            report.not_yet(["all"])
            continue
        try:
            CHECKS[family](case, backend, report)
        except OscineError as error:
            report.case = case.name
            report.fail("case", str(error))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
