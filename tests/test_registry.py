"""The families: what their records say, which one a checkpoint belongs to, and what is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import hub, registry
from oscine.cli import run
from oscine.cli.common import require_task
from oscine.errors import CheckpointError, PackageError, UsageError
from oscine.family import TASKS, Family, Network, Release
from oscine.weights import read_checkpoint
from oscine.weights.safetensors import serialize

GOLDENS = Path(__file__).resolve().parent / "goldens"
FOLDERS = {
    "whisper": "whisper_multi",
    "parakeet": "parakeet_tdt",
    "qwen3_tts": "qwen3_tts/base/ckpt",
}


def no_network() -> Network[Any, Any]:
    raise AssertionError("nothing is loaded here")


def family(name: str = "new", **more: Any) -> Family:
    made: dict[str, Any] = {
        "title": name.title(), "task": "transcribe", "checkpoint_signature": f"{name} of its own",
        "matches": lambda checkpoint: checkpoint.config.get("model_type") == name,
        "network": no_network,
    }  # fmt: skip
    return Family(name=name, **(made | more))


@pytest.fixture(autouse=True)
def only_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed, and nothing that a test registers stays."""
    monkeypatch.setattr(registry, "_installed", [])
    monkeypatch.setattr(registry, "_registered", [])


def write(folder: Path, config: dict[str, Any], **tensors: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(serialize(tensors or {"x": np.zeros(3, "<f4")}))
    return folder


# -- records --------------------------------------------------------------------------------------


def test_built_in_families_say_all_that_commands_ask() -> None:
    assert [each.name for each in registry.families()] == [*FOLDERS]
    assert {each.task for each in registry.families()} == set(TASKS)
    for each in registry.families():
        assert all(model.languages and model.megabytes for model in each.models.values())
    names = [name for each in registry.families() for name in (*each.models, *each.aliases)]
    assert len(names) == len(set(names))
    assert registry.default_model("transcribe") in registry.models("transcribe")
    assert registry.default_model("speak") in registry.models("speak")
    assert registry.default_cloning_model() in registry.models("speak")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "a/b"}, "'a/b' is not a name"),
        ({"models": {"..": Release("a/b", 1)}}, "'..' is not a name"),
        ({"models": {"x/../y": Release("a/b", 1)}}, "'x/../y' is not a name"),
        ({"models": {3: Release("a/b", 1)}}, "3 is not a name"),
        ({"models": {"x": Release("nowhere", 1)}}, "'nowhere', which is not org/name"),
        ({"aliases": {"x": "y"}}, "'y' is not a model of family 'new'"),
        ({"default": "y"}, "'y' is not a model of family 'new'"),
        ({"files": ("../x",)}, "'../x' is not the name of a file"),
        ({"files": ("/etc/x",)}, "'/etc/x' is not the name of a file"),
        ({"files": ("a/../b/",)}, "'a/../b/' is not the name of a file"),
        ({"files": ("",)}, "'' is not the name of a file"),
        ({"task": "sing"}, "task 'sing' is not one of transcribe, speak"),
        ({"task": "speak"}, "speaking goes with the task speak"),
        ({"task": []}, "Family: task is [], of type list, not str"),
        ({"name": "New"}, "'New' is not a name of small letters, digits and _ -"),
        ({"title": 3}, "Family: title is 3, of type int, not str"),
        (
            {"checkpoint_signature": None},
            "Family: checkpoint_signature is None, of type NoneType, not str",
        ),
        ({"matches": None}, "Family: matches is None, of type NoneType, not Callable"),
        ({"network": {}}, "Family: network is {}"),
        ({"is_complete": True}, "Family: is_complete is True, of type bool"),
        ({"models": [("x", Release("a/b", 1))]}, "Family: models is [('x', Release("),
        ({"models": {"x": "a/b"}}, "model 'x' is 'a/b', which is not a Release"),
        ({"models": {"x": Release("a/b", None)}}, "Release: megabytes is None"),  # type: ignore[arg-type]
        ({"models": {"x": Release("a/b", "1")}}, "Release: megabytes is '1', of type str, not int"),  # type: ignore[arg-type]
        ({"models": {"x": Release("a/b", True)}}, "Release: megabytes is True, of type bool"),
        ({"models": {"x": Release("a/b", 1, 99)}}, "Release: languages is 99"),  # type: ignore[arg-type]
        ({"models": {"x": Release(3, 1)}}, "Release: repository is 3"),  # type: ignore[arg-type]
        ({"models": {"x": Release("a/b", 1, wheels=("w",))}}, "model 'x' has 'w', which is not a"),  # type: ignore[arg-type]
        (
            {"models": {n: Release("a/b", 1) for n in ("x", "X")}},
            "two models or aliases called 'X'",
        ),
        (
            {"models": {n: Release("a/b", 1) for n in "xy"}, "aliases": {"x": "y"}},
            "two models or aliases called 'x'",
        ),
        ({"aliases": ["x"]}, "Family: aliases is ['x']"),
        ({"files": "abc"}, "Family: files is 'abc', of type str, not tuple"),
        ({"files": (3,)}, "3 is not the name of a file"),
        ({"default": 3}, "Family: default is 3"),
    ],
)
def test_a_record_that_cannot_be(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        family(**wrong)
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_every_checkpoint_of_the_goldens_belongs_to_one_family() -> None:
    """Of every format; whatever is only a part of a model belongs to none."""
    seen = set()
    for file in sorted(GOLDENS.rglob("*")):
        if file.suffix not in (".safetensors", ".npz", ".bin", ".pt", ".nemo"):
            continue
        try:
            checkpoint = read_checkpoint(file)
        except CheckpointError:
            continue  # goldens that are arrays, not checkpoints
        folder = file.relative_to(GOLDENS).parts
        if "speech_tokenizer" in folder or folder[1] == "codec":
            with pytest.raises(CheckpointError, match="is only the codec of a Qwen3-TTS"):
                registry.detect_family(checkpoint)
        else:
            found = registry.detect_family(checkpoint).name
            assert folder[0].startswith(found), file
            seen.add((found, checkpoint.format))
    assert {name for name, _ in seen} == set(FOLDERS) and len(seen) > 6


# -- which family ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [{}, {"model_type": "llama"}, {"model_type": [3]}])
def test_a_checkpoint_of_no_family_is_told_what_there_is(
    tmp_path: Path, stated: dict[str, Any]
) -> None:
    oscine.register(family())
    with pytest.raises(CheckpointError) as refused:
        oscine.load(write(tmp_path, stated), "cpu")
    told = str(refused.value)
    assert told.startswith(f"{tmp_path / 'model.safetensors'}: holds no Whisper encoder (missing")
    for each in registry.families():
        assert f"no {each.checkpoint_signature}" in told
    assert ("its configuration says model_type" in told) == bool(stated)
    assert "\n" not in told


def test_a_part_of_a_model_may_be_another_familys_model(tmp_path: Path) -> None:
    """A family's refusal counts only where no other takes the checkpoint."""
    folder = write(tmp_path, {"model_type": "qwen3_tts_tokenizer_12hz"})
    with pytest.raises(CheckpointError, match="only the codec of a Qwen3-TTS; give the folder"):
        oscine.load(folder, "cpu")
    oscine.register(family("qwen3_tts_tokenizer_12hz"))
    assert registry.detect_family(read_checkpoint(folder)).name == "qwen3_tts_tokenizer_12hz"


def test_two_families_that_take_a_checkpoint(tmp_path: Path) -> None:
    both = {"matches": lambda checkpoint: True}
    oscine.register(family("one", **both))
    oscine.register(family("two", **both))
    with pytest.raises(CheckpointError, match="belongs to more than one family: one and two;"):
        oscine.load(write(tmp_path, {}), "cpu")


def test_a_family_whose_code_fails_is_one_line_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> bool:
        raise RuntimeError("a\nb")

    def end(*arguments: Any) -> bool:
        raise SystemExit("a\nb")

    oscine.register(family("bad", matches=fail, is_complete=fail))
    oscine.register(family("ending", matches=end, is_complete=end))
    oscine.register(family("good"))
    folder = write(tmp_path / "x", {"model_type": "good"})
    assert registry.detect_family(read_checkpoint(folder)).name == "good"
    bad, ending = registry.families()[3:5]
    assert not any(registry.is_complete(each, folder, {}) for each in (bad, ending))
    told = [record.getMessage() for record in caplog.records]
    fails = (("bad", "RuntimeError: a b"), ("ending", "SystemExit: a b"))
    assert told == [
        f"family {name!r} cannot look at {at} ({why})"
        for at in (folder / "model.safetensors", folder)
        for name, why in fails
    ]


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (lambda: __import__("no_such_package"), "(ModuleNotFoundError: No module named 'no_such_"),
        (lambda: 3, "its network() gives int, not an oscine.family.Network"),
        (lambda: sys.exit("x\ny"), "(SystemExit: x y)"),
    ],
)
def test_a_family_without_what_it_needs_is_one_line(
    tmp_path: Path, network: Any, told: str
) -> None:
    oscine.register(family(network=network))
    with pytest.raises(PackageError) as refused:
        oscine.load(write(tmp_path, {"model_type": "new"}), "cpu")
    assert str(refused.value).startswith("family 'new' cannot be loaded") and told in str(
        refused.value
    )
    assert "\n" not in str(refused.value)


def no_memory() -> Any:
    raise MemoryError


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ({"load_weights": lambda *_: 1 / 0}, "(ZeroDivisionError: division by zero)"),
        ({"load_weights": lambda *_: sys.exit(3)}, "(SystemExit: 3)"),
        ({"load_weights": None}, "(TypeError: 'NoneType' object is not callable)"),
        (
            {"runner": lambda weights, backend: weights.nonsense},
            "(AttributeError: 'NoneType'",
        ),
        ({"model": lambda *_: None}, "(TypeError: its model is of type NoneType, not a Model)"),
        ({"model": lambda *_: Any}, "not a Model)"),
    ],
)
def test_a_family_that_makes_no_model_is_one_line(
    tmp_path: Path, steps: dict[str, Any], told: str
) -> None:
    made = {"load_weights": lambda *_: None, "runner": lambda *_: None, "model": lambda *_: None}
    oscine.register(family(network=lambda: Network(**(made | steps))))
    folder = write(tmp_path, {"model_type": "new"})
    with pytest.raises(PackageError) as refused:
        oscine.load(folder, "cpu")
    assert str(refused.value).startswith(f"family 'new' cannot load {folder} (")
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_what_oscine_raises_in_a_familys_code_stays_as_it_is(tmp_path: Path) -> None:
    def refuse(checkpoint: Any, dtype: str) -> Any:
        raise CheckpointError(checkpoint.path, "has three tones")

    for load, error in ((refuse, CheckpointError), (lambda *_: no_memory(), MemoryError)):
        name = f"new-{error.__name__.lower()}"
        network = Network(load, lambda *_: None, lambda *_: None)
        oscine.register(family(name, network=lambda made=network: made))
        with pytest.raises(error):
            oscine.load(write(tmp_path, {"model_type": name}), "cpu")


def test_a_fault_of_a_built_in_family_is_shown_as_one() -> None:
    whisper = registry.built_in()[0]
    with pytest.raises(ZeroDivisionError), registry.plugin_errors(whisper, "load"):
        _ = 1 / 0


def test_families_are_looked_for_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(registry, "_installed", None)
        patch.setattr(registry, "_entry_points", interrupted)
        with pytest.raises(KeyboardInterrupt):
            registry.installed()
        patch.setattr(registry, "_entry_points", lambda: [])
        assert registry._installed is None and registry.installed() == ()


def test_a_family_that_tells_nothing_of_voices_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], empty_home: Path
) -> None:
    """And saved voices of the others are listed."""
    known = {"models": {"say": Release("a/b", 1)}, "task": "speak"}
    oscine.register(family("mute", **known, speaking=lambda: None))
    oscine.register(family("torn", task="speak", speaking=lambda: 1 / 0))
    with pytest.raises(PackageError, match=r"its speaking\(\) gives NoneType, not an oscine"):
        registry.voice_support_of(registry.families("speak")[1])
    assert run(["voices", "list"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" cannot")[0] for line in told[:2]] == [
        "oscine: family 'mute'", "oscine: family 'torn'",
    ]  # fmt: skip
    assert "no voices are saved" in told[2] and len(told) == 3
    assert run(["voices", "list", "--model", "say"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_known_name_needs_no_other_family(empty_home: Path) -> None:
    """A family that takes everything does not come between a name and its model."""
    (empty_home / "models").mkdir(parents=True)
    (empty_home / "models" / "tiny").symlink_to(GOLDENS / "whisper_multi")
    oscine.register(family("greedy", matches=lambda checkpoint: True))
    assert oscine.load("tiny", "cpu", offline=True).name == "tiny"
    with pytest.raises(CheckpointError, match="more than one family: whisper and greedy"):
        oscine.load(GOLDENS / "whisper_multi", "cpu")


def test_a_known_name_needs_no_look_at_other_packages(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> Any:
        raise AssertionError("packages were looked at")

    monkeypatch.setattr(registry, "_installed", None)
    monkeypatch.setattr(registry, "_entry_points", look)
    (empty_home / "models").mkdir(parents=True)
    (empty_home / "models" / "tiny").symlink_to(GOLDENS / "whisper_multi")
    require_task("tiny", "transcribe")
    require_task(registry.default_model("speak"), "speak")
    assert oscine.load("tiny", "cpu", offline=True).name == "tiny"
    with pytest.raises(AssertionError):
        registry.families()


# -- register -------------------------------------------------------------------------------------


def test_a_registered_family_is_known_by_its_names(empty_home: Path) -> None:
    release = Release("some-one/new-model", 5, "two")
    more = {"models": {"new-model": release}, "aliases": {"newest": "new-model"}}
    new = family(**more, default="new-model")
    for _ in range(2):  # again changes nothing
        oscine.register(new)
    for name in ("new-model", "newest", "some-one/new-model"):
        assert registry.find_model(name) == (new, "new-model")
        assert hub.lookup(name) == ("new-model", release)
    assert list(registry.models())[-1] == "new-model"
    assert registry.default_model("transcribe") == "base"  # built-in ones come first
    with pytest.raises(UsageError, match="did you mean 'new-model'"):
        hub.lookup("new-modl")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "whisper"}, "there is a family 'whisper' already"),
        ({"models": {"base": Release("a/b", 1)}}, "another family has the name 'base'"),
        ({"models": {"Base": Release("a/b", 1)}}, "another family has the name 'Base'"),
        ({"models": {"large": Release("a/b", 1)}}, "another family has the name 'large'"),
        (
            {"models": {"x": Release("a/b", 1)}, "aliases": {"tiny.en": "x"}},
            "another family has the name 'tiny.en'",
        ),
    ],
)
def test_a_name_that_is_taken_cannot_be_registered(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        oscine.register(family(**given))
    assert [each.name for each in registry.families()] == [*FOLDERS]


def test_only_a_family_can_be_registered() -> None:
    with pytest.raises(UsageError, match="not dict"):
        oscine.register({"name": "x"})  # type: ignore[arg-type]


def test_names_taken_by_others_are_left_out_of_a_family() -> None:
    models = {"base": Release("a/b", 1), "mine": Release("c/d", 1)}
    wanted = family(models=models, aliases={"b": "base", "m": "mine", "turbo": "mine"})
    wanted = replace(wanted, default="base")
    kept, problem = registry._without_conflicts(wanted, registry.built_in())
    assert kept is not None and problem == (
        "another family has the name 'base', 'turbo' and keeps it"
    )
    assert (list(kept.models), dict(kept.aliases), kept.default) == (["mine"], {"m": "mine"}, None)


# -- what is imported -----------------------------------------------------------------------------


def modules_after(code: str) -> list[str]:
    """Names of the modules that a process has imported after some code."""
    code += "\nimport sys; print(' '.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return run.stdout.split()


@pytest.mark.parametrize("name", FOLDERS)
def test_loading_one_family_imports_no_other(name: str) -> None:
    folder = str(GOLDENS / FOLDERS[name])
    loaded = modules_after(f"import oscine; model = oscine.load({folder!r}, 'cpu')")
    for other in FOLDERS:
        own = [m for m in loaded if m.startswith(f"oscine.models.{other}.")]
        assert len(own) > 10 if other == name else own == [f"oscine.models.{other}.released"]


def test_records_are_cheap() -> None:
    """To know all models takes neither NumPy nor a network, nor a look at other packages."""
    loaded = modules_after(
        "from oscine import registry\n"
        "[registry.find_model(name) for family in registry.built_in() for name in family.models]\n"
        "registry.default_models()"
    )
    assert "numpy" not in loaded and "importlib.metadata" not in loaded
    assert not [m for m in loaded if m.startswith("oscine.ops") or m.endswith(".network")]
