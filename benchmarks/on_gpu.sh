#!/usr/bin/env bash
# Everything worth knowing of a GPU, in one go: kernel parity and goldens under both WebGPU
# implementations, then encoder and step times, the latter by batch too, and a whole recording, beside
# PyTorch's where that is installed.
# Usage: benchmarks/on_gpu.sh [FOLDER for logs] [FOLDER of goldens]   (SIZES="turbo large-v3", IMPLEMENTATIONS="wgpu dawn")
# Needs the package and its dependencies importable by python3; prints a summary last.
set -u
cd "$(dirname "$0")/.."
logs=${1:-/tmp/oscine-gpu}
goldens=${2:-tests/goldens}
mkdir -p "$logs"
export PYTHONUNBUFFERED=1

for implementation in ${IMPLEMENTATIONS:-wgpu dawn}; do
    export OSCINE_WEBGPU=$implementation
    echo "$implementation begins at ${SECONDS} s"
    python3 -m oscine doctor --device gpu >"$logs/doctor_$implementation.txt" 2>&1
    echo "$implementation doctor: exit $?; $(tail -n 1 "$logs/doctor_$implementation.txt")"
    python3 tools/check_golden.py "$goldens" --device gpu \
        >"$logs/golden_$implementation.txt" 2>&1
    echo "$implementation goldens: exit $?; $(tail -n 1 "$logs/golden_$implementation.txt")"
    for size in ${SIZES:-turbo}; do
        python3 benchmarks/gpu.py --size "$size" --json "$logs/times.jsonl" \
            >"$logs/times_${size}_$implementation.txt" 2>&1
        grep -E '^(encoder_ms|step_ms|step_host_ms|step_dispatches|step_share|encoder_tflops)' \
            "$logs/times_${size}_$implementation.txt" | sed "s/^/$implementation $size /"
        python3 benchmarks/batch.py --size "$size" --json "$logs/batches.jsonl" \
            >"$logs/batch_${size}_$implementation.txt" 2>&1
        grep -E '^ +[0-9]+ ' "$logs/batch_${size}_$implementation.txt" |
            sed "s/^/$implementation $size batch/"
        python3 benchmarks/encoder.py --size "$size" --json "$logs/encoders.jsonl" \
            >"$logs/encoder_${size}_$implementation.txt" 2>&1
        grep -E '^ +[0-9]+ ' "$logs/encoder_${size}_$implementation.txt" |
            sed "s/^/$implementation $size encoder/"
        python3 benchmarks/recording.py --size "$size" --json "$logs/recordings.jsonl" \
            >"$logs/recording_${size}_$implementation.txt" 2>&1
        grep -E '^ +[0-9]+ ' "$logs/recording_${size}_$implementation.txt" |
            sed "s/^/$implementation $size recording/"
        python3 benchmarks/gpu.py --size "$size" --repeat 3 --trace \
            >"$logs/trace_${size}_$implementation.txt" 2>&1
        grep ' times ' "$logs/trace_${size}_$implementation.txt" | sed "s/^/$implementation $size /"
    done
    for script in parakeet transducer; do
        python3 "benchmarks/$script.py" >"$logs/${script}_$implementation.txt" 2>&1
        tail -n 2 "$logs/${script}_$implementation.txt"
    done
    python3 benchmarks/speech.py --keep "$logs/checkpoints" --json "$logs/times.jsonl" \
        >"$logs/speech_$implementation.txt" 2>&1
    grep '^{' "$logs/speech_$implementation.txt" | cut -c 1-400
done
if python3 -c 'import torch, transformers' 2>/dev/null; then
    for size in ${SIZES:-turbo}; do
        python3 benchmarks/peer_torch.py --size "$size" >"$logs/torch_$size.txt" 2>&1
        grep -E '_ms|Error' "$logs/torch_$size.txt" | sed "s/^/torch $size /"
    done
    python3 benchmarks/peer_torch_parakeet.py 2>&1 | tee "$logs/torch_parakeet.txt" | tail -n 2
fi
if python3 -c 'import torch, qwen_tts' 2>/dev/null; then
    python3 benchmarks/peer_torch_speech.py --keep "$logs/checkpoints" >"$logs/torch_speech.txt" 2>&1
    grep '^{' "$logs/torch_speech.txt"
fi
rm -rf "$logs/checkpoints"
