"""Which model a name means, and when models are loaded and unloaded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oscine.cli.serve import ServedModels
from oscine.errors import HubError, UsageError
from oscine.options.serve import ServeOptions
from oscine.server.catalog import Catalog, ServedModel
from oscine.server.errors import ApiError

from .conftest import WHISPER
from .running import Running, Scripted, ScriptedSpeaker, Shelf

Serve = Callable[..., Running]


def shelf() -> Shelf:
    """Three models of 100 bytes each."""
    return Shelf({"a": Scripted(), "b": Scripted(), "voice": ScriptedSpeaker()})


def use(catalog: Catalog, name: str, task: Any = "transcribe") -> ServedModel:
    """A model in use, waited for at most a second."""
    return asyncio.run(catalog.use(name, task, 1.0))


def ready(models: Shelf, *names: str, **more: Any) -> Catalog:
    catalog = Catalog(names or tuple(models.models), (), models, **more)
    catalog.ready = True
    return catalog


def test_a_model_is_loaded_when_it_is_used() -> None:
    models = shelf()
    catalog = ready(models)
    assert use(catalog, "b").model is models.models["b"]
    assert use(catalog, "voice", "speak").model is models.models["voice"]
    use(catalog, "b")
    assert models.done == ["load b", "load voice"]
    assert [each.users for each in catalog.models.values()] == [0, 2, 1]


def test_openais_names_and_aliases_need_no_loaded_model() -> None:
    models = shelf()
    catalog = Catalog(("a", "voice"), ("mine=voice",), models)
    for name, task, id in [
        ("whisper-1", "transcribe", "a"), ("tts-1", "speak", "voice"), ("mine", "speak", "voice"),
        ("tts-1", None, "voice"), ("gpt-4o-transcribe", None, "a"),
    ]:  # fmt: skip
        found = catalog.lookup(name, task)  # type: ignore[arg-type]
        assert found is not None and found.id == id
    assert catalog.lookup("tts-1", "transcribe") is None and catalog.lookup("b") is None
    with pytest.raises(ApiError, match="for speech to text, not for text to speech"):
        use(catalog, "a", "speak")
    with pytest.raises(UsageError, match="'b' is not served"):
        Catalog(("a",), ("mine=b",), models)


def test_the_least_recently_used_makes_room() -> None:
    models = shelf()
    catalog = ready(models, max_memory=250)
    for name, task in [("a", "transcribe"), ("b", "transcribe"), ("a", "transcribe")]:
        use(catalog, name, task).release()
    use(catalog, "voice", "speak").release()
    assert models.done == ["load a", "load b", "unload b", "load voice"]
    assert catalog.memory_used == 200


def test_a_model_in_use_is_not_unloaded() -> None:
    models = shelf()
    catalog = ready(models, max_memory=100)
    first = use(catalog, "a")
    with pytest.raises(ApiError) as refused:
        use(catalog, "b")
    assert (refused.value.status, refused.value.code) == (503, "models_busy")
    assert catalog.models["b"].users == 0
    first.release()
    use(catalog, "b")
    assert models.done == ["load a", "unload a", "load b"]


def test_a_model_above_the_limit_is_tried_alone() -> None:
    models = shelf()
    assert use(ready(models, max_memory=10), "a").model is not None


def test_the_first_models_are_loaded_as_far_as_they_fit() -> None:
    models = shelf()
    catalog = Catalog(("a", "b", "voice"), (), models, max_memory=200)
    catalog.load_first()
    assert models.done == ["load a", "load b"] and catalog.ready


def test_an_idle_model_is_unloaded() -> None:
    models = shelf()
    catalog = ready(models, keep_alive_s=1000.0)
    busy = use(catalog, "a")
    use(catalog, "b").release()
    asyncio.run(catalog.unload_idle())
    assert catalog.models["b"].model is not None  # its time is not over
    for served in catalog.models.values():
        served.last_used -= 2000
    asyncio.run(catalog.unload_idle())
    assert models.done == ["load a", "load b", "unload b"]
    busy.release()
    asyncio.run(catalog.unload_idle())
    assert catalog.models["a"].model is not None  # its time begins when its use ends
    busy.last_used -= 2000
    asyncio.run(catalog.unload_idle())
    assert models.done[-1] == "unload a"
    assert use(catalog, "a").model is not None


def test_a_model_that_cannot_be_loaded_is_not_there_now() -> None:
    models = shelf()
    models.models["b"] = HubError("a path of this machine: no such file")
    catalog = ready(models)
    with pytest.raises(ApiError) as refused:
        use(catalog, "b")
    assert (refused.value.status, refused.value.code) == (503, "loading_failed")
    assert "path" not in refused.value.message
    models.models["b"] = Scripted()
    assert use(catalog, "b").model is models.models["b"]


def test_two_requests_load_a_model_once() -> None:
    models = shelf()
    catalog = ready(models)

    async def both() -> None:
        await asyncio.gather(
            catalog.use("a", "transcribe", 5.0), catalog.use("a", "transcribe", 5.0)
        )

    asyncio.run(both())
    assert models.done == ["load a"] and catalog.models["a"].users == 2


def test_every_end_of_a_request_releases_its_model(serve: Serve) -> None:
    """Else it would never be unloaded."""
    speaker = ScriptedSpeaker()
    speaker.release.set()
    running = serve({"a": Scripted(UsageError("beam_size is wrong")), "voice": speaker})
    served = running.catalog.models
    url = f"{running.url}/v1/audio"
    form: dict[str, Any] = {"data": {"model": "a"}, "files": {"file": b"x"}}
    assert httpx2.post(f"{url}/transcriptions", **form).status_code == 400
    speech = {"model": "voice", "input": "Hello.", "response_format": "pcm"}
    assert httpx2.post(f"{url}/speech", json=speech).status_code == 200
    assert httpx2.post(f"{url}/speech", json={**speech, "voice": "none"}).status_code == 404
    running.server.gate.draining = True
    assert httpx2.post(f"{url}/speech", json=speech).status_code == 503
    running.until(lambda: not running.server.gate.jobs)
    running.until(lambda: all(not each.users for each in served.values()))


def test_nothing_of_a_request_keeps_an_unloaded_model(serve: Serve, example: Path) -> None:
    running = serve({"a": None})
    catalog = running.catalog
    catalog.models["a"] = ServedModel("a", str(WHISPER), task="transcribe")
    catalog._loader = ServedModels(ServeOptions.of(device="cpu"))
    catalog.keep_alive_s = 0.0
    client = running.client()

    def text() -> str:
        options = {"sample_len": 4, "temperature": ["0"]}
        recording = example.read_bytes()
        return client.audio.transcriptions.create(
            file=recording, model="a", extra_body=options
        ).text

    first = text()
    running.until(lambda: not catalog.models["a"].users)
    assert catalog.models["a"].nbytes > 100_000
    runner = weakref.ref(catalog.models["a"].model.runner)
    asyncio.run_coroutine_threadsafe(catalog.unload_idle(), running.loop).result(30)
    assert catalog.models["a"].model is None
    running.until(lambda: gc.collect() >= 0 and runner() is None)
    assert text() == first
