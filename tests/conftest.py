"""What tests need and may not have: a WebGPU adapter, real weights, recordings of others.

A test without its need is skipped with the reason. Under OSCINE_REQUIRE_GPU=1 and
OSCINE_REQUIRE_WEIGHTS=1, as in CI, it fails instead: nothing is skipped unseen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from oscine import hub
from oscine.errors import DeviceError, HubError

from .hub_server import server, wheels  # noqa: F401  # fixtures

# A run that `nohup` or `&` started ignores these, and so would every process that it starts.
for _name, _usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, _name), _usual)

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
WEIGHTS = ("tiny.en", "base")


# No property is timed: machines here are shared.
settings.register_profile("oscine", deadline=None)
settings.load_profile("oscine")


def pytest_configure() -> None:
    # One implementation a run, so that a report says which; `make test` runs both.
    os.environ.setdefault("OSCINE_WEBGPU", "wgpu")
    # The definitions, also where the extra [cpu] is installed; tests/ops/compiled has the other.
    os.environ.setdefault("OSCINE_CPU", "numpy")


def _missing(switch: str, reason: str) -> NoReturn:
    if os.environ.get(switch, "0") not in ("", "0"):
        pytest.fail(f"{reason} ({switch} is set)", pytrace=False)
    pytest.skip(reason)


def pytest_report_header() -> str:
    return f"WebGPU: {os.environ['OSCINE_WEBGPU']}; model folder: {hub.home()}"


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    """A marker alone is enough: `gpu` asks for the adapter, `weights` for the weights."""
    for marker, fixture in (("gpu", "adapter"), ("weights", "weights")):
        if request.node.get_closest_marker(marker):
            request.getfixturevalue(fixture)


@pytest.fixture(scope="session")
def adapter() -> Any:
    """The best adapter of the chosen implementation; a software one will do."""
    from oscine.gpu.device import select_adapter

    try:
        return select_adapter("gpu")
    except DeviceError as error:
        reason = str(error)
    _missing("OSCINE_REQUIRE_GPU", reason)


@pytest.fixture(scope="session")
def device(adapter: Any) -> Any:
    """An open `oscine.gpu.device.Device`, shared by the whole run."""
    from oscine.gpu.device import open_device

    return open_device(adapter)


@pytest.fixture(scope="session")
def weights() -> dict[str, Path]:
    """Folders of real models by name: tiny.en (English) and base (99 languages)."""
    try:
        return {name: hub.resolve(name) for name in WEIGHTS}
    except HubError as error:
        reason = str(error)
    _missing("OSCINE_REQUIRE_WEIGHTS", reason)


@pytest.fixture(scope="session")
def shared_audio() -> Path:
    """Recordings with transcripts that lie beside the checkout, where they are to be had."""
    folder = ROOT.parent / "shared" / "audio"
    if not (folder / "manifest.jsonl").exists():
        pytest.skip(f"no recordings in {folder}")
    return folder


@pytest.fixture(scope="session")
def example() -> Path:
    """Our own recording; its text lies beside it as .txt."""
    return EXAMPLES / "spoken.wav"


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model folder and a Hugging Face cache with nothing in them."""
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("OSCINE_OFFLINE", "HF_HUB_OFFLINE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / "home"


@pytest.fixture(scope="session")
def gpu(device: Any) -> Any:
    """The op vocabulary on the chosen device, as `oscine.load` would open it."""
    from oscine.ops.webgpu import Gpu

    return Gpu(device)


@pytest.fixture(scope="session")
def plain_gpu(adapter: Any) -> Any:
    """The same adapter as hardware without any optional feature would be."""
    from oscine.gpu.device import open_device
    from oscine.ops.webgpu import Gpu

    return Gpu(open_device(adapter, without=adapter.features))
