#!/usr/bin/env python3
"""What a device reaches at best: a copy, and matrix products with float16 and float32 weights.

Usage: limits.py [--device gpu]
Run once an implementation (OSCINE_WEBGPU). Prints one JSON line: GB/s, read and written, and
TFLOP/s by the dtype of the weights.
"""

from __future__ import annotations

import argparse
import json

from oscine.backends import choose_backend
from oscine.bench import measure_limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="gpu")
    backend = choose_backend(parser.parse_args().device)
    print(json.dumps({"device": backend.name, **measure_limits(backend).to_dict()}))


if __name__ == "__main__":
    main()
