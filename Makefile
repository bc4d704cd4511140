# Targets that build, check and measure; `make` alone lists them.
# Variables: PYTHON (3.11 to 3.14), VENV (its environment), JOBS (test workers), TESTS (which),
# SECONDS (of fuzz, fuzz-server, soak, callers and load), CLIENTS and LOAD (of load: their number, other options),
# SEED (of both fuzz), UPSTREAM and UPSTREAM_SPEECH (Pythons with the programs of tools/goldens; that of
# speech pins another transformers), PEER (a Python with faster-whisper).

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
JOBS ?= 2
TESTS ?= tests
SECONDS ?= 60
CLIENTS ?= 50
OLDEST ?= python3.11
LOWEST_VENV ?= .cache/lowest-venv
# What touches each of the packages, in a few minutes.
LOWEST_TESTS = tests/audio/test_io.py tests/audio/test_wav.py tests/audio/test_container.py \
	tests/audio/test_channels.py tests/audio/test_write.py tests/audio/test_silero.py tests/text \
	tests/test_formats.py tests/test_hub.py tests/test_threads.py \
	tests/test_numpy_alone.py tests/cli/test_main.py tests/cli/test_transcribe.py \
	tests/gpu/test_device.py tests/gpu/test_kernels.py tests/models/whisper/test_decode.py \
	tests/models/parakeet/test_pipeline.py tests/models/qwen3_tts/test_runner.py

PY = $(VENV)/bin/python
GPU = PYTHON=$(PY) tools/with_gpu.sh
# Workers share the cores already; BLAS threads on top of them only wait for each other.
# A worker begins with a stretch of the list, whose tests share kernels and models, and takes from
# the other's stretch when its own is done.
PYTEST = OPENBLAS_NUM_THREADS=1 $(GPU) $(PY) -m pytest -q -n $(JOBS) --dist worksteal $(TESTS)

.PHONY: help install check format test test-gpu test-lowest tested fuzz fuzz-server soak callers load chroot pages docs \
	goldens bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 12

install: $(VENV)/ready ## make the environment: this package, test and development tools

$(VENV)/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; name one: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]' >$(VENV)/pip.log 2>&1 \
		|| { tail -n 20 $(VENV)/pip.log >&2; exit 1; }
	@touch $@

check: $(VENV)/ready ## the layout of the tree, formatting, lint and types
	$(PY) -m pytest -q tests/test_layout.py
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(VENV)/ready ## put the files into shape
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

test: $(VENV)/ready ## every test under wgpu, then under Dawn what depends on the implementation
	OSCINE_WEBGPU=wgpu $(PYTEST) -rs
	OSCINE_WEBGPU=dawn $(PYTEST) -rs -m "gpu and not host"

test-gpu: $(VENV)/ready ## of these only the tests that need a GPU
	OSCINE_WEBGPU=wgpu $(PYTEST) -rs -m gpu
	OSCINE_WEBGPU=dawn $(PYTEST) -rs -m "gpu and not host"

test-lowest: ## a quick part of the tests on Python 3.11 with the lowest versions that are allowed
	$(OLDEST) -m venv --clear $(LOWEST_VENV)
	@$(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c requirements/lowest.txt -e '.[test]' >$(LOWEST_VENV)/pip.log 2>&1 \
		|| { tail -n 20 $(LOWEST_VENV)/pip.log >&2; exit 1; }
	OPENBLAS_NUM_THREADS=1 PYTHON=$(LOWEST_VENV)/bin/python tools/with_gpu.sh \
		$(LOWEST_VENV)/bin/python -m pytest -q -n $(JOBS) -m "not weights" $(LOWEST_TESTS)

tested: $(VENV)/ready ## write down the versions of this environment, once all tests have passed in it
	@{ echo "# What the tests were last run with, on Python $$($(PY) -c \
		'import platform; print(platform.python_version())'); \`make tested\` writes it."; \
		$(PY) -m pip freeze --exclude-editable | grep -v '^#\|^-e\| @ '; } >requirements/tested.txt

fuzz: $(VENV)/ready ## damaged files at random, for SECONDS; SEED makes the same ones again
	$(PY) tools/fuzz.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

fuzz-server: $(VENV)/ready ## wrong requests to a server, for SECONDS; SEED makes the same ones again
	$(PY) tools/fuzz_server.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Each device has a third of the time.
SOAK = OPENBLAS_NUM_THREADS=1 $(GPU) $(PY) tools/soak.py --seconds $$(( $(SECONDS) / 3 ))

soak: $(VENV)/ready ## every family called again and again for SECONDS: the same results, and nothing grows
	$(SOAK) --device cpu
	OSCINE_WEBGPU=wgpu $(SOAK) --device gpu
	OSCINE_WEBGPU=dawn $(SOAK) --device gpu

# A tiny random model, whose steps are so short that many threads get many answers.
CALLERS = OPENBLAS_NUM_THREADS=1 $(GPU) $(PY) tools/many_callers.py --model tests/goldens/whisper_multi \
	--longest 4 --seconds $$(( $(SECONDS) / 3 )) --round $$(( $(SECONDS) / 9 ))

callers: $(VENV)/ready ## many threads share a model for SECONDS: each answer is what it is alone, nothing grows
	$(CALLERS) --device cpu
	OSCINE_WEBGPU=wgpu $(CALLERS) --device gpu --threads 8 --jobs 12
	OSCINE_WEBGPU=dawn $(CALLERS) --device gpu --threads 8 --jobs 12

load: $(VENV)/ready ## CLIENTS of a server for SECONDS: each answer is what it is alone, nothing grows
	$(PY) tools/serve_load.py --clients $(CLIENTS) --seconds $(SECONDS) $(LOAD)

chroot: ## the README's two commands on a bare Debian 12 and 13, timed; root and debootstrap
	tools/chroot.sh

pages: $(VENV)/ready ## write docs/cli.md from the records of options, docs/python.md from docstrings
	$(PY) tools/write_cli_page.py
	$(PY) tools/write_python_page.py

$(VENV)/docs-ready: $(VENV)/ready
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[docs]' >$(VENV)/pip.log 2>&1 \
		|| { tail -n 20 $(VENV)/pip.log >&2; exit 1; }
	@touch $@

docs: $(VENV)/docs-ready ## build the documentation's site in build/site; a broken link or anchor is an error
	rm -rf build/site
	$(VENV)/bin/sphinx-build -q -W --keep-going -c docs . build/site

goldens: ## make the committed goldens again, with UPSTREAM= and UPSTREAM_SPEECH=path/to/python
	@test -n "$(UPSTREAM)" -a -n "$(UPSTREAM_SPEECH)" || { echo "name two Pythons, one with torch and" \
		"transformers, one with qwen-tts: make goldens UPSTREAM=... UPSTREAM_SPEECH=..." >&2; exit 1; }
	$(UPSTREAM) tools/goldens/whisper.py --out tests/goldens
	$(UPSTREAM) tools/goldens/parakeet.py --out tests/goldens
	$(UPSTREAM_SPEECH) tools/goldens/qwen3_tts.py --out tests/goldens/qwen3_tts

bench: $(VENV)/ready ## speed and memory on this machine; with PEER=path/to/python beside faster-whisper
	$(PY) benchmarks/command_speed.py $(if $(PEER),--peer-python $(PEER))
	$(PY) benchmarks/memory.py
	$(if $(PEER),$(PY) benchmarks/accuracy.py --peer-python $(PEER))

clean: ## remove what the targets made
	rm -rf $(VENV) .cache build .pytest_cache .mypy_cache .ruff_cache .hypothesis
