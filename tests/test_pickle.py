"""Models, results and errors go from one process to another."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import errors
from oscine.errors import AudioError, Cancelled, HubError, OscineError, UsageError
from oscine.models.base_model import Model
from oscine.types import Audio, Coverage, Segment, Transcript, Word

GOLDENS = Path(__file__).resolve().parent / "goldens"
FAMILIES = ("whisper_multi", "parakeet_tdt", "qwen3_tts/custom_voice/ckpt")
SOUND = np.sin(np.arange(16000) / 20).astype(np.float32)


def encoded(model: Any) -> Any:
    """What another process computes with a model that it was given."""
    return model.name, model.device, model.encode(SOUND)


def refused(model: Any) -> str:
    return str(model.transcribe("there/is/no.wav"))


def checkpoint(folder: str) -> Path:
    path = GOLDENS / folder
    return path / "ckpt" if (path / "ckpt").exists() else path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pickled_model_is_opened_again_as_it_was(family: str) -> None:
    how: dict[str, Any] = {"offline": True, "deterministic": True, "memory": "1GB"}
    model = oscine.load(checkpoint(family), device="cpu", dtype="f32", **how)
    pickled = pickle.dumps(model)
    assert len(pickled) < 1000  # how it was opened, and no weights
    again = pickle.loads(pickled)
    assert again is not model and type(again) is type(model)
    assert (again.name, again.device) == (model.name, model.device)
    assert again._reopen.args[1:] == model._reopen.args[1:] == ("cpu", "f32")
    assert again._reopen.keywords == how
    assert again.engine.fixed_rows == model.engine.fixed_rows == 1


def test_a_relative_path_is_found_from_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = checkpoint("whisper_multi")
    monkeypatch.chdir(folder.parent)
    pickled = pickle.dumps(oscine.load(folder.name, device="cpu"))
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickled).name == folder.name


def test_a_process_that_is_spawned_computes_the_same() -> None:
    model = oscine.load(checkpoint("whisper_multi"), device="cpu")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        name, device, there = pool.apply(encoded, (model,))
        with pytest.raises(AudioError, match=r"there/is/no.wav: no such file; check the path"):
            pool.apply(refused, (model,))
    assert (name, device) == (model.name, model.device)
    np.testing.assert_array_equal(there, model.encode(SOUND))


def test_a_model_whose_weights_are_gone_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.symlink_to(checkpoint("whisper_multi"))
    pickled = pickle.dumps(oscine.load(folder, device="cpu"))
    folder.unlink()
    with pytest.raises(HubError) as told:
        pickle.loads(pickled)
    assert str(told.value) == f"{folder}: no such file or folder"


def test_a_model_by_name_whose_weights_are_gone_is_one_line(empty_home: Path) -> None:
    empty_home.joinpath("models").mkdir(parents=True)
    place = empty_home / "models" / "tiny.en"
    place.symlink_to(checkpoint("whisper_en"))
    pickled = pickle.dumps(oscine.load("tiny.en", device="cpu", offline=True))
    assert str(place).encode() not in pickled  # by its name, which another machine knows too
    place.unlink()
    with pytest.raises(HubError, match=r"^model 'tiny.en' is not on this machine and .*\Z"):
        pickle.loads(pickled)


def test_a_copy_of_a_model_is_the_model() -> None:
    model = oscine.load(checkpoint("whisper_multi"), device="cpu")
    assert copy.copy(model) is model and copy.deepcopy({"model": [model]})["model"][0] is model


def test_a_model_that_was_not_opened_by_load_says_so() -> None:
    loaded = oscine.load(checkpoint("whisper_multi"), device="cpu")
    model: Any = Model(loaded.runner, "mine")
    with pytest.raises(UsageError, match=r"was not opened by oscine\.load"):
        pickle.dumps(model)


ERRORS = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, OscineError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_read_back_as_it_was(kind: type[OscineError]) -> None:
    makes = kind.__init__
    names = ["what", "more"]
    if inspect.isfunction(makes):
        names = list(inspect.signature(makes).parameters)[1:]
    error = kind(*names)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert (str(again), again.args) == (str(error), error.args)
        assert vars(again) == vars(error)


def test_results_are_read_back_as_they_were() -> None:
    segment = Segment(
        0, 0, 0.0, 1.0, " Hi", (1,), 0.0, -0.1, 1.0, 0.0, (Word(0.0, 1.0, "Hi", 1.0),)
    )
    whole = Transcript(
        " Hi", "en", (segment,), 1.0, "tiny.en", "NumPy", {}, 0.9, Coverage(1.0, 0.0)
    )
    stop = Cancelled("talk.wav: cancelled")
    stop.partial = whole
    assert pickle.loads(pickle.dumps(whole)) == whole == copy.deepcopy(whole)
    assert pickle.loads(pickle.dumps(stop)).partial == whole
    audio = pickle.loads(pickle.dumps(Audio(SOUND, 16000)))
    np.testing.assert_array_equal(audio.samples, SOUND)
