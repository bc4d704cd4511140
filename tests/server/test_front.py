"""What every request passes: key, Host, Origin, size; and the form of errors, ids and logs."""

from __future__ import annotations

import hmac
import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AuthenticationError

from oscine.errors import OscineError, UsageError
from oscine.options.serve import ServeOptions
from oscine.server import front
from oscine.server.front import check_exposure, read_keys

from .running import Running, Scripted

Serve = Callable[..., Running]
KEY = "sk-0123456789-secret"


def get(running: Running, path: str = "/v1/models", **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.get(f"{running.url}{path}", headers=named)


def code_of(answer: httpx2.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_a_key_is_needed_for_all_but_health(serve: Serve) -> None:
    running = serve({}, (KEY, "sk-another-key"))
    for path in ("/health", "/health/ready"):
        assert get(running, path).status_code == 200
    for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/audio/voices", "/nowhere"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}):
            answer = get(running, path, **headers)
            assert (answer.status_code, code_of(answer)) == (401, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
    with pytest.raises(AuthenticationError):
        running.client("wrong").models.list()
    assert running.client(KEY).models.list().data == []
    assert running.client("sk-another-key").models.list().data == []


def test_a_proxy_offers_it_below_a_path(serve: Serve) -> None:
    """The proxy has removed the path."""
    running = serve({}, (KEY,), root_path="/speech")
    assert get(running, "/health").status_code == 200
    assert get(running, "/v1/models").status_code == 401
    assert get(running, "/v1/models", authorization=f"Bearer {KEY}").status_code == 200
    assert get(running, "/speech", authorization=f"Bearer {KEY}").status_code == 404


def test_keys_are_compared_in_constant_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of one length, all of them for every request."""
    compared: list[tuple[int, int]] = []
    known = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return known(one, other)

    monkeypatch.setattr(front.hmac, "compare_digest", compare)
    running = serve({}, (KEY, "k"))
    for given in (KEY, "k", "x" * 400):
        get(running, authorization=f"Bearer {given}")
    assert compared == [(32, 32)] * 6


@pytest.mark.parametrize(
    ("host", "key", "told", "refused"),
    [
        ("127.0.0.1", False, False, False), ("::1", False, False, False),
        ("localhost", False, False, False), ("0.0.0.0", False, False, True),
        ("::", False, False, True), ("192.168.0.7", False, False, True),
        ("example.org", False, False, True), ("0.0.0.0", True, False, False),
        ("0.0.0.0", False, True, False),
    ],
)  # fmt: skip
def test_a_public_address_needs_a_key_unless_told(
    host: str, key: bool, told: bool, refused: bool
) -> None:
    options = ServeOptions.of(
        host=host, api_key_file="keys" if key else None, allow_unauthenticated=told
    )
    if not refused:
        check_exposure(options)
        return
    with pytest.raises(UsageError, match="can be reached by other machines"):
        check_exposure(options)


def test_a_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of the team\n{KEY}\n\n  other-key  \n")
    assert read_keys(str(file)) == (KEY, "other-key")
    for contents in ("", "# none\n", f"{KEY} with a space\n", "schlüssel\n"):
        file.write_text(contents)
        with pytest.raises(UsageError) as refused:
            read_keys(str(file))
        assert KEY not in str(refused.value) and "schl" not in str(refused.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(str(tmp_path / "nothing"))


def test_other_hosts_are_refused_without_a_key(serve: Serve) -> None:
    """A name that an attacker's server resolves to this machine."""
    running = serve({}, allowed_host=["oscine.lan"])
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", ""):
        answer = get(running, host=host)
        assert (answer.status_code, code_of(answer)) == (403, "host_not_allowed"), host
    for host in ("localhost:1", "127.0.0.1", "[::1]:8000", "10.0.0.1:80", "OSCINE.lan:8000"):
        assert get(running, host=host).status_code == 200, host
    assert get(serve({}, (KEY,)), host="x.org", authorization=f"Bearer {KEY}").status_code == 200


def test_pages_of_other_origins_are_refused(serve: Serve) -> None:
    running = serve({}, cors_origin=["https://page.example"])
    for origin in ("https://evil.example", "null", "http://[", "http://127.0.0.1:1"):
        answer = get(running, origin=origin)
        assert (answer.status_code, code_of(answer)) == (403, "origin_refused"), origin
        assert "access-control-allow-origin" not in answer.headers
    own = get(running, origin=running.url)
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers
    allowed = get(running, origin="https://page.example")
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"


def test_a_browser_asks_first(serve: Serve) -> None:
    running = serve({}, (KEY,), cors_origin=["https://page.example"])
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-a,y"}
    url = f"{running.url}/v1/audio/speech"
    answer = httpx2.options(url, headers={"origin": "https://page.example", **asked})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"] == "x-a,y"
    refused = httpx2.options(url, headers={"origin": "https://evil.example", **asked})
    assert refused.status_code == 403


def test_a_large_body_is_refused(serve: Serve) -> None:
    """By its stated length, and by what comes where none is stated."""
    running = serve({"a": Scripted()}, max_upload_mb=1)
    url = f"{running.url}/v1/audio/transcriptions"

    def parts() -> Any:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(3):
            yield bytes(1_000_000)

    form = {"content-type": "multipart/form-data; boundary=x"}
    for content in (bytes(2_000_000), parts()):
        answer = httpx2.post(url, content=content, headers=form)
        assert (answer.status_code, code_of(answer)) == (413, "file_too_large")
        assert "1 MB" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("max_upload_mb", "key", "status"), [(1, KEY, 413), (100, "k", 401)])
def test_a_client_that_sends_much_is_not_cut_off(
    serve: Serve, max_upload_mb: int, key: str, status: int
) -> None:
    """It sends its whole body, and then reads why it is refused."""
    running = serve({}, (KEY,), max_upload_mb=max_upload_mb)
    body = bytes(30_000_000)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        head = f"POST /v1/audio/speech HTTP/1.1\r\nContent-Length: {len(body)}\r\nHost: a\r\n"
        head += "Connection: close\r\n"
        client.sendall(f"{head}Authorization: Bearer {key}\r\n\r\n".encode() + body)
        assert client.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_client_that_waits_to_send_is_refused_at_once(serve: Serve) -> None:
    running = serve({}, (KEY,))
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_a_client_that_sends_nothing_more_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "BODY_IDLE_S", 0.1)
    monkeypatch.setattr(front, "DRAIN_S", 0.1)
    running = serve({})
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        client.sendall(head.encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_does_not_end_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client sends often enough not to be idle."""
    monkeypatch.setattr(front, "DRAIN_S", 0.1)
    running = serve({}, timeout=0.5)
    with socket.create_connection(("127.0.0.1", running.port), timeout=0.1) as client:
        head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n"
        client.sendall(head.encode())
        for _ in range(100):
            client.sendall(b" ")
            try:
                assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
                return
            except TimeoutError:
                continue
    raise AssertionError("the client may send as long as it likes")


def test_clients_without_a_key_do_not_fill_the_server(serve: Serve) -> None:
    """Their bodies are still received, and discarded, after the refusal."""
    running = serve({}, (KEY,), max_requests=1)
    head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(6)]
    for client in clients:
        client.sendall(head.encode())
    running.until(lambda: len(running.http.server_state.tasks) == len(clients))
    assert get(running, authorization=f"Bearer {KEY}").status_code == 200
    for client in clients:
        client.close()


def test_errors_have_openais_form(serve: Serve) -> None:
    running = serve({})
    url = f"{running.url}/v1"
    for answer, status in [
        (httpx2.get(f"{url}/nothing"), 404),
        (httpx2.get(f"{url}/audio/speech"), 405),
        (httpx2.post(f"{url}/audio/transcriptions", json={}), 415),
        (httpx2.post(f"{url}/audio/speech", data={"a": "b"}), 415),
        (httpx2.post(f"{url}/audio/speech", content=b"{"), 400),
        (httpx2.post(f"{url}/audio/speech", content=b"[" * 100_000), 400),
        (httpx2.post(f"{url}/audio/speech", json=[]), 400),
        (httpx2.get(f"{url}/models/none"), 404),
        (httpx2.delete(f"{url}/audio/voices/none"), 404),
    ]:
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"\xed\xa0\x80"', b'{"\\uDFFF\\ud83d": 1}'])
def test_half_a_surrogate_pair_is_refused(serve: Serve, text: bytes) -> None:
    """Python's JSON makes a text of it that no answer can have: a voice of that name would have
    ended each list of the voices."""
    running = serve({"a": Scripted()})
    for path, field in (("speech", b"model"), ("voices", b"name")):
        answer = httpx2.post(
            f"{running.url}/v1/audio/{path}", content=b'{"%s": %s}' % (field, text),
            headers={"content-type": "application/json"},
        )  # fmt: skip
        assert (answer.status_code, code_of(answer)) == (400, "invalid_json")


def test_a_surrogate_pair_is_text(serve: Serve) -> None:
    body = b'{"model": "\\ud83d\\ude00", "input": "a"}'
    answer = httpx2.post(f"{serve({}).url}/v1/audio/speech", content=body)
    assert (answer.status_code, code_of(answer)) == (404, "model_not_found")


@pytest.mark.parametrize("charset", ["unicode_escape", "punycode", "utf-16"])
def test_a_form_has_one_character_set(serve: Serve, charset: str) -> None:
    """punycode takes hours for a large field, and unicode_escape makes halves of pairs."""
    form = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n\\ud800\r\n--x--\r\n'
    media = f"multipart/form-data; boundary=x; charset={charset}"
    url = f"{serve({}).url}/v1/audio/voices"
    answer = httpx2.post(url, content=form, headers={"content-type": media})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_form")


def test_the_fields_of_a_form_are_bounded_together(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oscine.server.fields.MAX_TEXT_BYTES", 1000)
    url = f"{serve({'a': Scripted()}).url}/v1/audio/transcriptions"
    fields = {f"field_{number}": "x" * 200 for number in range(6)}
    answer = httpx2.post(url, data=fields, files={"file": b"x" * 2000})
    assert "its fields have more than 1000 bytes" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "form",
    [
        b"", b"--x", b"--x\r\n\r\n--x--",
        b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 300,
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n1\r\n' * 2 + b"--x--",
        b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n1\r\n' * 5,
        b"\x00\xff" * 1000,
    ],
)  # fmt: skip
def test_a_damaged_form_is_refused(serve: Serve, form: bytes) -> None:
    running = serve({"a": Scripted()})
    for media in ("multipart/form-data; boundary=x", "multipart/form-data",
                  "multipart/form-data; boundary=x; charset=none"):  # fmt: skip
        answer = httpx2.post(
            f"{running.url}/v1/audio/transcriptions", content=form, headers={"content-type": media}
        )
        assert answer.status_code == 400 and answer.json()["error"]["message"]


def test_every_answer_has_an_id(serve: Serve) -> None:
    running = serve({})
    assert get(running, x_request_id="mine-1").headers["x-request-id"] == "mine-1"
    for path, given in (("/v1/models", "a b"), ("/nothing", "x" * 65), ("/health", "")):
        answer = get(running, path, x_request_id=given)
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_fault_shows_no_detail(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    running = serve({"a": Scripted(RuntimeError("a secret of the server"))})
    answer = httpx2.post(
        f"{running.url}/v1/audio/transcriptions", data={"model": "a"}, files={"file": b"x"}
    )
    assert (answer.status_code, code_of(answer)) == (500, "internal_error")
    assert "secret" not in answer.text
    running.until(lambda: "a secret of the server" in caplog.text)  # for the operator


def test_no_secret_is_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    running = serve({"a": Scripted(OscineError("fails"))}, (KEY,))
    httpx2.post(
        f"{running.url}/v1/audio/transcriptions?token=in-the-query",
        data={"model": "a", "prompt": "a private prompt"},
        files={"file": ("private-name.wav", b"private contents")},
        headers={"authorization": f"Bearer {KEY}", "cookie": "session=private"},
    )
    get(running, authorization="Bearer wrong-private-key")
    running.until(lambda: "401" in caplog.text)
    own = [each.getMessage() for each in caplog.records if each.name.startswith("oscine")]
    assert any("/v1/audio/transcriptions" in line for line in own)
    text = json.dumps(own)
    assert "private" not in text and "secret" not in text and "token" not in text


def test_metrics(serve: Serve, whisper: Any, example: Path) -> None:
    running = serve({"small": whisper})
    with example.open("rb") as file:
        running.client().audio.transcriptions.create(
            file=file, model="small", extra_body={"sample_len": 2}
        )
    get(running, "/nothing")
    lines = get(running, "/metrics").text.splitlines()
    counted = 'oscine_requests_total{route="/v1/audio/transcriptions",status="200"} 1'
    assert counted in lines
    assert 'oscine_requests_total{route="other",status="404"} 1' in lines
    assert "oscine_audio_seconds_total 8.34606" in lines
    assert 'oscine_sequences_waiting{model="small"} 0' in lines
    assert 'oscine_request_seconds_count{route="/v1/audio/transcriptions"} 1' in lines


def test_the_description_of_the_routes_has_every_option(serve: Serve) -> None:
    from oscine.options import options_of
    from oscine.options.transcribe import TranscribeOptions

    paths = get(serve({}), "/openapi.json").json()["paths"]
    form = paths["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
    fields = form["multipart/form-data"]["schema"]["properties"]
    assert set(options_of(TranscribeOptions)) <= set(fields)
    assert fields["beam_size"]["type"] == "integer"


def test_the_description_of_the_routes_has_what_they_answer(serve: Serve) -> None:
    running = serve({})
    paths = get(running, "/openapi.json").json()["paths"]
    for methods in paths.values():
        for route in methods.values():
            assert set(route["responses"]) == {"200", "4XX", "5XX"}
    spoken = paths["/v1/audio/speech"]["post"]["responses"]["200"]["content"]
    assert {"audio/mpeg", "audio/wav", "text/event-stream"} <= set(spoken)


def test_all_methods_of_a_path_are_named(serve: Serve) -> None:
    answer = httpx2.put(f"{serve({}).url}/v1/audio/voices")
    assert answer.status_code == 405 and answer.headers["allow"] == "GET, POST"
