"""Wrong values at every key of every configuration: a model loads, or the error is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oscine.errors import MAX_PROBLEM_CHARS

from ..bounded import run_bounded

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"

#: A golden's folder and the file in it that is changed.
FILES = (
    ("whisper_formats/hf", "config.json"),
    ("whisper_multi", "generation_config.json"),
    ("whisper_formats/mlx_q4", "config.json"),
    ("parakeet_tdt", "config.json"),
    ("parakeet_tdt", "processor_config.json"),
    ("parakeet_formats/mlx", "config.json"),
    ("qwen3_tts/base/ckpt", "config.json"),
    ("qwen3_tts/custom_voice/ckpt", "generation_config.json"),
    ("qwen3_tts/custom_voice/ckpt", "speech_tokenizer/config.json"),
)

LOAD = """
import copy, logging, shutil, tempfile
from dataclasses import replace
from pathlib import Path
from oscine.errors import CheckpointError
from oscine.models import parakeet as parakeet_family, qwen3_tts
from oscine.model_files import read_json
from oscine.models.parakeet.weights import load_weights as parakeet
from oscine.models.qwen3_tts.config import read_config as speaking
from oscine.models.whisper import tokens
from oscine.models.whisper.weights import load_weights as whisper
from oscine.text.whisper import load_tokenizer
from oscine.weights import read_checkpoint

logging.disable(logging.CRITICAL)
LIES = [None, True, -1, 0, 1 << 31, 10**400, 0.5, float("nan"), "x" * 5000, [], [[0, 1 << 40]], {}]

def places(value, at=()):
    yield at
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if isinstance(value, dict) or len(keys) < 8 else [0, len(keys) - 1]:
        inner = value[key]
        if isinstance(inner, (dict, list)) and inner:
            yield from places(inner, (*at, key))
        else:
            yield (*at, key)

def replaced(value, at, lie):
    if not at:
        return lie
    changed = copy.copy(value)
    changed[at[0]] = replaced(value[at[0]], at[1:], lie)
    return changed

def load(folder):
    checkpoint = replace(FIRST, config=read_json(folder / "config.json"))
    if parakeet_family.matches(checkpoint):
        parakeet(checkpoint)
    elif qwen3_tts.matches(checkpoint):
        settings = read_json(folder / "speech_tokenizer" / "config.json")
        speaking(checkpoint, replace(CODEC, config=settings))
    else:
        weights = whisper(folder)
        if (folder / "tokenizer.json").exists():
            found = tokens.resolve_special_tokens(load_tokenizer(folder), weights.config)
            assert max(found.always_suppressed()) < weights.config.n_vocab

source, name = GIVEN
folder = Path(tempfile.mkdtemp()) / "model"
shutil.copytree(source, folder)
FIRST = read_checkpoint(folder)  # whose tensors stay
CODEC = FIRST
if (folder / "speech_tokenizer").exists():
    CODEC = read_checkpoint(folder / "speech_tokenizer")
good = json.loads((folder / name).read_text("utf-8"))
for at in places(good):
    for lie in LIES:
        (folder / name).unlink()
        (folder / name).write_text(json.dumps(replaced(good, at, lie)))
        said = ""
        try:
            load(folder)
        except CheckpointError as error:
            said = str(error).replace(str(folder), "FOLDER")
        except Exception as error:
            raise AssertionError(f"{at} = {str(lie)[:40]}") from error
        if said or not at:
            print(json.dumps({"at": at, "lie": str(lie)[:40], "said": said}))
shutil.rmtree(folder.parent)
"""


@pytest.mark.parametrize(("folder", "name"), FILES)
def test_a_lie_in_any_place_of_a_configuration(folder: str, name: str) -> None:
    lines: list[dict[str, Any]] = run_bounded(
        LOAD, [str(GOLDENS / folder), name], seconds=240, megabytes=1000
    )
    assert len(lines) > 10
    for line in lines:
        said = line["said"]
        if said:
            assert said.startswith("FOLDER") and "\n" not in said, line
            assert len(said) < MAX_PROBLEM_CHARS + 300, line
