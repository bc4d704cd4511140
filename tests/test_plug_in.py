"""A family of another package: installed, found, loaded and run by the command, in a process of its
own. The family is tests/plug_ins/tone_family; nothing in src/ knows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import registry
from oscine.weights.safetensors import serialize

from .hub_server import Server

ROOT = Path(__file__).resolve().parent.parent
PLUG_INS = ROOT / "tests" / "plug_ins"
RATE, WIDTH = 16_000, 400
TONES = {"la": 440.0, "mi": 680.0, "ti": 1000.0}


def checkpoint(**config: Any) -> dict[str, bytes]:
    """The files of a model that knows TONES."""
    angles = 2 * np.pi * np.outer([*TONES.values()], np.arange(WIDTH)) / RATE
    probes = np.stack([np.cos(angles), np.sin(angles)], 1).reshape(-1, WIDTH)
    stated = {"model_type": "tone", "tones": [*TONES]} | config
    return {
        "config.json": json.dumps(stated).encode(),
        "model.safetensors": serialize({"probes": probes.astype("<f4")}),
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in files.items():
        (folder / name).write_bytes(body)
    return folder


def installed(place: Path, entry: str = "tone = tone_family:FAMILY", name: str = "tones") -> Path:
    """A folder for PYTHONPATH with the metadata that an installer writes for a package."""
    points = f"[oscine.families]\n{entry}\n".encode()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    write(place / f"{name}-1.0.dist-info", {"METADATA": metadata, "entry_points.txt": points})
    return place


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A second of each tone, and half a second that is no whole one."""
    times = np.arange(RATE) / RATE
    sound = [np.sin(2 * np.pi * TONES[name] * times) for name in ("mi", "la", "ti", "la")]
    samples = (np.concatenate([*sound, sound[0][: RATE // 2]]) * 8000).astype("<i2")
    with wave.open(str(tmp_path / "tones.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return tmp_path / "tones.wav"


def oscine(
    home: Path, *arguments: object, packages: tuple[Path, ...], **environment: str
) -> subprocess.CompletedProcess[str]:
    """`oscine`, where these folders hold installed packages, with an empty folder of models."""
    path = os.pathsep.join(map(str, (*packages, PLUG_INS)))
    own = {"PYTHONPATH": path, "OSCINE_HOME": str(home), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "oscine", *map(str, arguments)],
        env=os.environ | own | environment, capture_output=True, text=True, timeout=120,
        check=False, cwd=home,
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_family_of_another_package_transcribes(
    tmp_path: Path, home: Path, recording: Path
) -> None:
    package = installed(tmp_path / "site")
    model = write(tmp_path / "my model", checkpoint())
    run = oscine(
        home, "transcribe", recording, "--model", model, "--device", "cpu", "-f", "tsv",
        packages=(package,),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    said = [["0", "1000", "mi"], ["1000", "2000", "la"], ["2000", "3000", "ti"]]
    assert lines == [["start", "end", "text"], *said, ["3000", "4000", "la"]]
    without = oscine(home, "transcribe", recording, "--model", model, packages=())
    assert without.returncode == 1 and without.stdout == ""
    assert "holds no Whisper encoder" in without.stderr
    assert "its configuration says model_type 'tone'" in without.stderr


def test_its_models_are_known_by_name(
    tmp_path: Path, home: Path, recording: Path, server: Server
) -> None:
    """Listed, refused offline, fetched from a Hub, found again."""
    packages = (installed(tmp_path / "site"),)
    server.offer_hub("made-up/tone-tiny", checkpoint() | {"README.md": b"words"})
    listed = oscine(home, "models", "list", packages=packages)
    assert listed.returncode == 0 and listed.stderr == ""
    row = next(line for line in listed.stdout.splitlines() if "tone-tiny" in line)
    assert row.split() == "tone-tiny speech to text tones 1 MB".split()
    offline = oscine(home, "models", "pull", "tone-tiny", "--offline", packages=packages)
    assert offline.returncode == 1
    assert "model 'tone-tiny' is not on this machine" in offline.stderr
    pulled = oscine(home, "models", "pull", "tone-tiny", packages=packages)
    assert pulled.returncode == 0, pulled.stderr
    folder = home / "models" / "tone-tiny"
    assert pulled.stdout == f"{folder}\n"
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors"}
    asked = len(server.asked)
    for name in ("tone-tiny", "made-up/tone-tiny"):
        run = oscine(
            home, "transcribe", recording, "--model", name, "--offline", packages=packages,
            OSCINE_DEVICE="cpu",
        )  # fmt: skip
        assert (run.returncode, run.stdout.split()) == (0, ["mi", "la", "ti", "la"]), run.stderr
    assert len(server.asked) == asked
    close = oscine(home, "models", "pull", "tone-tny", "--offline", packages=packages)
    assert "did you mean 'tone-tiny'?" in close.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--beam-size", "5"],
            "Tone does not support --beam-size: leave it out, or use a Whisper model",
        ),
        (["--word-timestamps"], "Tone does not support --word-timestamps: leave it out"),
        (["--no-vad"], "Tone does not support --vad-filter: leave it out"),
        (["--max-audio-seconds", "1"], "tones.wav: is longer than the 1 s of --max-audio-seconds"),
        (["--live"], "tone-tiny cannot transcribe live audio, only whole recordings"),
    ],
)
def test_what_it_lacks_is_refused_by_name(
    tmp_path: Path, home: Path, recording: Path, arguments: list[str], told: str
) -> None:
    write(home / "models" / "tone-tiny", checkpoint())
    files = ["-"] if "--live" in arguments else [recording]
    run = oscine(
        home, "transcribe", *files, "--model", "tone-tiny", "--device", "cpu", *arguments,
        packages=(installed(tmp_path / "site"),),
    )  # fmt: skip
    assert run.stdout == "" and told in run.stderr and run.stderr.count("\n") == 1
    assert run.returncode == (1 if "--max-audio-seconds" in told else 2)


def test_it_cannot_speak(tmp_path: Path, home: Path) -> None:
    packages = (installed(tmp_path / "site"),)
    run = oscine(home, "speak", "Hello.", "-o", "x.wav", "--model", "tone-tiny", packages=packages)
    assert run.returncode == 2
    told = "tone-tiny writes down and does not speak; oscine transcribe is its command"
    assert run.stderr == f"oscine: {told}\n"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("tone = gone_family:FAMILY", "cannot be loaded (ModuleNotFoundError: No module named"),
        ("tone = tone_family:GONE", "cannot be loaded (AttributeError: module"),
        ("tone = tone_family:network", "tone_family:network is of type function, not oscine.fa"),
        ("tone = this is nothing", "cannot be loaded ("),
        ("tone = broken_family:raises", "cannot be loaded (RuntimeError: two lines)"),
        ("tone = broken_family:ends", "cannot be loaded (SystemExit: 3)"),
        ("tone = broken_family:named", "cannot be loaded (UsageError: '../x' is not a name"),
        ("tone = broken_family:whisper", "there is a family 'whisper' already"),
    ],
)
def test_a_package_that_is_broken_is_one_line(
    tmp_path: Path, home: Path, recording: Path, entry: str, told: str
) -> None:
    """And what else there is goes on working."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "broken_family.py").write_text(BROKEN)
    packages = (installed(tmp_path / "site", entry, "broken"), installed(tmp_path / "more"))
    write(home / "models" / "tone-tiny", checkpoint())
    run = oscine(
        home, "transcribe", recording, "--model", "tone-tiny", "--device", "cpu", packages=packages
    )
    assert (run.returncode, run.stdout.split()) == (0, ["mi", "la", "ti", "la"]), run.stderr
    assert run.stderr.startswith("oscine: family 'tone' of package broken")
    assert told in run.stderr and run.stderr.count("\n") == 1


def test_what_a_package_prints_is_not_a_result(tmp_path: Path, home: Path, recording: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "chatty.py").write_text(CHATTY)
    package = installed(tmp_path / "site", "tone = chatty:FAMILY")
    model = write(tmp_path / "model", checkpoint())
    run = oscine(
        home, "transcribe", recording, "--model", model, "--device", "cpu", packages=(package,)
    )
    assert (run.returncode, run.stdout.split()) == (0, ["mi", "la", "ti", "la"]), run.stderr
    assert run.stderr.splitlines() == [
        f"chatty {each}" for each in ("import", "matches", "network")
    ]


CHATTY = """
from dataclasses import replace
import tone_family

print("chatty import")

def matches(checkpoint):
    print("chatty matches")
    return tone_family.FAMILY.matches(checkpoint)

def network():
    print("chatty network")
    return tone_family.network()

FAMILY = replace(tone_family.FAMILY, matches=matches, network=network)
"""

BROKEN = """
from dataclasses import replace
from tone_family import FAMILY

def __getattr__(name):
    if name == "raises":
        raise RuntimeError("two\\nlines")
    if name == "ends":
        raise SystemExit(3)
    if name == "named":
        return replace(FAMILY, models={"../x": FAMILY.models["tone-tiny"]})
    if name == "whisper":
        return replace(FAMILY, name="whisper", models={})
    raise AttributeError(name)
"""

CLAIMING = """
from dataclasses import replace
from oscine.family import Release
from tone_family import FAMILY

MODELS = {name: Release("someone/else", 7, "two") for name in ("base", "tone-two", "large")}
FAMILY = replace(
    FAMILY, name="claiming", models=MODELS, aliases={"two": "tone-two"}, default="base",
    matches=lambda checkpoint: checkpoint.config.get("also") == "claiming",
)
"""


def test_a_package_that_registers_its_family_itself_has_it_once(tmp_path: Path, home: Path) -> None:
    (tmp_path / "site").mkdir()
    code = "import oscine\nfrom tone_family import FAMILY\noscine.register(FAMILY)\n"
    (tmp_path / "site" / "eager.py").write_text(code)
    packages = (installed(tmp_path / "site", "tone = eager:FAMILY"),)
    run = oscine(home, "models", "list", packages=packages)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("tone-tiny") == 1


def test_a_name_that_two_families_claim_stays_with_the_first(tmp_path: Path, home: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "claiming.py").write_text(CLAIMING)
    entry = "claiming = claiming:FAMILY"
    run = oscine(home, "models", "list", packages=(installed(tmp_path / "site", entry),))
    assert run.returncode == 0
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [row[0] for row in rows].count("base") == 1
    assert next(row for row in rows if row[0] == "base")[5] == "99"
    assert next(row for row in rows if row[0] == "tone-two")[4:6] == ["two", "7"]
    told = "another family has the name 'base', 'large' and keeps it"
    assert run.stderr == f"oscine: family 'claiming' of package tones: {told}\n"


def test_a_checkpoint_that_two_families_take_is_loaded_by_neither(
    tmp_path: Path, home: Path, recording: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "claiming.py").write_text(CLAIMING)
    entry = "claiming = claiming:FAMILY\ntone = tone_family:FAMILY"
    packages = (installed(tmp_path / "site", entry),)
    model = write(tmp_path / "model", checkpoint(also="claiming"))
    run = oscine(home, "transcribe", recording, "--model", model, packages=packages)
    assert (
        run.returncode == 1 and "belongs to more than one family: claiming and tone" in run.stderr
    )


def test_a_checkpoint_chooses_no_code(tmp_path: Path, home: Path, recording: Path) -> None:
    """A family is known by its package, not by what a checkpoint says of code: no word of it is
    imported, and a family that is not installed is not found in the model's folder."""
    files = checkpoint(
        auto_map={"AutoModel": "hostile.Model"}, target="hostile.Model", family="tone"
    )
    model = write(tmp_path / "model", files | {"hostile.py": b"open('touched', 'w')\n"})
    installed(model, "tone = hostile:FAMILY")
    run = oscine(home, "transcribe", recording, "--model", model, "--device", "cpu", packages=())
    assert (run.returncode, run.stdout) == (1, "") and run.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("touched"))


def test_a_package_in_the_current_folder_is_none(tmp_path: Path, recording: Path) -> None:
    """Also where Python looks for modules there, as it does for code that is given to it."""
    here = installed(tmp_path, "tone = hostile:FAMILY")
    (here / "hostile.py").write_text("open('touched', 'w')\n")
    code = "from oscine import registry; print([f.name for f in registry.families()])"
    for given in (["-c", code], ["-m", "oscine", "models", "list"]):
        run = subprocess.run(
            [sys.executable, *given], cwd=here, capture_output=True, text=True, timeout=60,
            check=True, env=os.environ | {"OSCINE_HOME": str(tmp_path / "home")},
        )  # fmt: skip
        assert "tone" not in run.stdout and run.stderr == ""
    assert not (here / "touched").exists()


def test_contributing_names_what_the_family_is_made_of() -> None:
    told = " ".join((ROOT / "CONTRIBUTING.md").read_text("utf-8").split())
    steps = told.partition("- *A family of models*")[2].partition("- *")[0]
    record = (PLUG_INS / "tone_family" / "__init__.py").read_text("utf-8")
    network = (PLUG_INS / "tone_family" / "network.py").read_text("utf-8")
    for name in ("FAMILY = Family(", "matches", "is_complete"):
        assert name in steps and name in record
    assert "NETWORK = Network(load_weights, runner, model)" in steps
    for name in ("NETWORK = Network(load_weights, ", "Transcriber", "Transcription", "engine.call"):
        assert name in network and name.partition("(")[0] in steps
    assert (
        registry.ENTRY_POINT_GROUP in steps
        and "registry.BUILT_IN" in steps
        and "oscine.register" in steps
    )
    assert len(record.splitlines()) + len(network.splitlines()) <= 130
