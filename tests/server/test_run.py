"""`oscine serve` in a process of its own: its start, its end, and what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from oscine.audio.write import save
from oscine.cli import run
from oscine.types import Audio

from .conftest import WHISPER

COMMAND = (sys.executable, "-m", "oscine", "serve", "--device", "cpu", "--offline", "--port", "0")


class Process:
    """The command, once it is ready."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()
        self.url = self.first.partition("listening on ")[2].partition(";")[0]
        self.ready = self.process.stderr.readline()

    def end(self) -> tuple[int, str]:
        """Exit code and the rest of stderr."""
        _, lines = self.process.communicate(timeout=60)
        return self.process.returncode, lines


@pytest.fixture
def server() -> Iterator[Process]:
    made = Process("--model", str(WHISPER), "--alias", "mine=whisper_multi")
    yield made
    made.process.kill()
    made.process.wait()


def test_sigterm_lets_the_work_end(server: Process, tmp_path: Path) -> None:
    assert server.first.endswith("; loading whisper_multi\n")
    assert server.ready == f"oscine: ready on {server.url}\n"
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000 * 120).astype(np.float32)
    save(Audio(noise, 16_000), tmp_path / "long.wav")
    answers: list[Any] = []

    def ask() -> None:
        data = {"model": "mine", "vad_filter": "false", "temperature[]": "0"}
        with (tmp_path / "long.wav").open("rb") as file:
            url = f"{server.url}/v1/audio/transcriptions"
            answers.append(httpx2.post(url, data=data, files={"file": file}, timeout=120))

    client = threading.Thread(target=ask)
    client.start()
    while "oscine_requests_at_work 1" not in httpx2.get(f"{server.url}/metrics").text:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    client.join(120)
    assert answers[0].status_code == 200 and answers[0].json()["usage"]["seconds"] == 120
    assert server.end() == (0, "")
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.url}/health")


@pytest.mark.parametrize("flags", [(), ("--verbose",)])
def test_a_warning_of_a_recording_is_for_the_client(
    flags: tuple[str, ...], example: Path, tmp_path: Path
) -> None:
    (tmp_path / "cut.wav").write_bytes(example.read_bytes()[:20_000])
    made = Process("--model", str(WHISPER), *flags)
    try:
        data = {"model": "whisper-1", "sample_len": "4", "response_format": "verbose_json"}
        url = f"{made.url}/v1/audio/transcriptions"
        with (tmp_path / "cut.wav").open("rb") as file:
            answer = httpx2.post(url, data=data, files={"file": file}, timeout=60).json()
        (warning,) = answer["x_oscine"]["warnings"]
        assert warning.startswith("file: breaks off; using the ")
        made.process.send_signal(signal.SIGTERM)
        code, log = made.end()
        assert code == 0 and (f"oscine: {warning}\n" in log if flags else log == "")
    finally:
        made.process.kill()
        made.process.wait()


def test_ctrl_c_ends_it_when_idle(server: Process) -> None:
    assert httpx2.get(f"{server.url}/health/ready").json() == {"status": "ready"}
    server.process.send_signal(signal.SIGINT)
    assert server.end() == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 can be reached by other machines"),
        (["--api-key-file", "empty"], "holds no key"),
        (["--api-key-file", "nothing"], "cannot be read"),
        (["--model", "no-such-model"], "no model is called 'no-such-model'"),
        (["--model", str(WHISPER)], "two models are called 'whisper_multi'"),
        (["--alias", "a"], "--alias must be NAME=MODEL"),
        (["--alias", "a=b"], "'b' is not served"),
        (["--port", "99999"], "--port must be at most 65535"),
        (["--timeout", "0"], "--timeout must be above 0"),
        (["--root-path", "speech"], "--root-path must begin with /"),
    ],
)
def test_mistakes_cost_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("")
    code = run(["serve", "--device", "cpu", "--model", str(WHISPER), *arguments])
    lines = capsys.readouterr().err
    assert code == 2 and lines.count("\n") == 1 and says in lines, lines


def test_a_model_that_cannot_be_loaded_ends_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{")
    code = run(["serve", "--device", "cpu", "--port", "0", "--model", str(tmp_path)])
    first, second = capsys.readouterr().err.splitlines()
    assert code == 1 and "listening on" in first and str(tmp_path) in second


def test_an_address_that_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code = run(["serve", "--device", "cpu", "--model", str(WHISPER), "--port", port])
    assert code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err


def test_an_open_websocket_does_not_hold_the_end_up(server: Process) -> None:
    url = server.url.replace("http", "ws")
    with connect(f"{url}/v1/audio/speech/stream") as session:
        session.send('{"type": "session.config"}')
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == (0, "")
        with pytest.raises(ConnectionClosed):
            session.recv(30)


def test_a_model_comes_and_goes(example: Path) -> None:
    made = Process("--model", str(WHISPER), "--on-demand", "--keep-alive", "0.2")
    try:

        def loaded() -> bool:
            (row,) = httpx2.get(f"{made.url}/v1/models").json()["data"]
            return bool(row["loaded"])

        assert made.first.endswith("; loading on demand whisper_multi\n") and not loaded()
        texts = []
        for _ in range(2):
            data = {"model": "whisper-1", "sample_len": "4", "temperature[]": "0"}
            url = f"{made.url}/v1/audio/transcriptions"
            with example.open("rb") as file:
                texts.append(httpx2.post(url, data=data, files={"file": file}, timeout=60).json())
            while loaded():
                time.sleep(0.05)
        assert texts[0] == texts[1] and texts[0]["text"]
        made.process.send_signal(signal.SIGTERM)
        assert made.end() == (0, "")
    finally:
        made.process.kill()
        made.process.wait()


def test_wyoming_beside_http_ends_with_it() -> None:
    made = Process("--model", str(WHISPER), "--wyoming", "tcp://127.0.0.1:0")
    try:
        port = int(made.first.rpartition(":")[2])
        assert f"; Wyoming on tcp://127.0.0.1:{port}\n" in made.first
        assert httpx2.get(f"{made.url}/health").status_code == 200
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(b'{"type": "describe"}\n')
            assert client.makefile("rb").readline().startswith(b'{"type": "info"')
            made.process.send_signal(signal.SIGTERM)
            assert made.end() == (0, "")
            assert client.recv(1 << 20) is not None
    finally:
        made.process.kill()
        made.process.wait()
