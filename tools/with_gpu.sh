#!/usr/bin/env bash
# Run a command with a GPU: this machine's own, else the software one; always the software one
# under OSCINE_REQUIRE_GPU=1, so that a run for the record is the same everywhere.
#
#     PYTHON=.venv/bin/python tools/with_gpu.sh pytest -m gpu
set -euo pipefail

has_hardware() {
    "${PYTHON:-python3}" -c 'from oscine.gpu.device import choose; choose("auto")' 2>/dev/null
}

if [ "${OSCINE_REQUIRE_GPU:-0}" = 1 ]; then
    settings="$("$(dirname "$0")/software_gpu.sh")" && eval "$settings"
elif ! has_hardware; then
    # Without one the tests that need a GPU are skipped, and say so.
    settings="$("$(dirname "$0")/software_gpu.sh")" && eval "$settings" || true
fi
exec "$@"
