"""The routes that are neither audio nor text, and the page of the server."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import BadRequestError, NotFoundError

from oscine.fleet.model import open_fleet

from .conftest import SPEECH, WHISPER
from .running import Running

Serve = Callable[..., Running]
ROOT = Path(__file__).resolve().parents[2]


def test_models(serve: Serve, whisper: Any, speakers: dict[str, Any]) -> None:
    running = serve({"small": whisper, "org/voice": speakers["custom_voice"]})
    running.catalog.aliases["mine"] = "small"
    client = running.client()
    first, second = client.models.list().data
    assert (first.id, first.object, first.owned_by) == ("small", "model", "oscine")
    assert (first.task, second.task) == ("transcribe", "speak")  # type: ignore[attr-defined]
    assert first.languages == ["en", "zh", "de", "es"]  # type: ignore[attr-defined]
    for name in ("small", "org/voice", "mine", "whisper-1", "tts-1"):
        assert client.models.retrieve(name).id == name
    with pytest.raises(NotFoundError):
        client.models.retrieve("base")
    assert httpx2.get(f"{running.url}/v1/audio/models").json()["models"]


def test_a_model_of_the_other_task_is_not_found(
    serve: Serve, whisper: Any, speakers: dict[str, Any], example: Path
) -> None:
    client = serve({"small": whisper, "voice": speakers["custom_voice"]}).client()
    with pytest.raises(NotFoundError, match="for text to speech, not for speech to text"):
        client.audio.transcriptions.create(model="voice", file=example.read_bytes())
    with pytest.raises(NotFoundError, match="for speech to text, not for text to speech"):
        client.audio.speech.create(model="small", voice="alloy", input="Hello.")


def test_requests_wait_for_the_models(serve: Serve) -> None:
    running = serve({"small": None})
    running.catalog.ready = False
    assert httpx2.get(f"{running.url}/health").json() == {"status": "ok"}
    ready = httpx2.get(f"{running.url}/health/ready")
    assert (ready.status_code, ready.json()) == (503, {"status": "loading"})
    answer = httpx2.post(
        f"{running.url}/v1/audio/speech", json={"model": "small", "input": "Hello."}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
    assert answer.headers["retry-after"] == "5"


def test_the_python_of_the_page_runs(
    serve: Serve, whisper: Any, speakers: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    voice = speakers["custom_voice"]
    whole = voice._stream

    def short(started: float, text: Any, cancel: Any, options: Any, **how: Any) -> Any:
        return whole(started, text, cancel, {"max_frames": 4} | options, **how)

    monkeypatch.setattr(voice, "_stream", short)
    running = serve({"base": whisper, "voice": voice})
    page = (ROOT / "docs" / "serve.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    code = code.replace("http://127.0.0.1:8000", running.url)
    exec(code.replace("examples/spoken.wav", str(ROOT / "examples" / "spoken.wav")), {})
    assert "transcript.text.done" in capsys.readouterr().out
    assert (tmp_path / "hello.mp3").stat().st_size > 500


def test_a_model_in_several_processes_is_served_as_one(
    serve: Serve, whisper: Any, speakers: dict[str, Any], example: Path
) -> None:
    """As `--device all` loads it."""
    texts = open_fleet(["cpu", "cpu"], str(WHISPER), "f32", offline=True)
    voices = open_fleet(["cpu"], str(SPEECH / "custom_voice" / "ckpt"), "f32", offline=True)
    try:
        client = serve({"small": texts, "voice": voices}).client()
        options = {"sample_len": 4, "vad_filter": False}
        recording = example.read_bytes()
        answer = client.audio.transcriptions.create(
            model="small", file=recording, extra_body=options
        )
        assert answer.text == whisper.transcribe(example, **options).text.strip()
        more: dict[str, Any] = {"model": "small", "file": recording, "extra_body": options}
        *_, last = client.audio.transcriptions.create(stream=True, **more)
        assert last.text == answer.text  # type: ignore[union-attr]
        with pytest.raises(BadRequestError) as refused:
            client.audio.transcriptions.create(language="klingon", **more)
        assert refused.value.param == "language"
        sound = [
            server.audio.speech.create(
                model="voice", voice="alloy", input="Hello.", response_format="pcm",
                extra_body={"max_frames": 8, "seed": 1, "guard": False},
            ).content
            for server in (client, serve({"voice": speakers["custom_voice"]}).client())
        ]  # fmt: skip
        assert sound[0] == sound[1] and sound[0]
    finally:
        for fleet in (texts, voices):
            fleet.close()
