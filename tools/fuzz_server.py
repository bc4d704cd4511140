"""Send wrong requests to `oscine serve`, and see that each has an answer that says what is wrong.

    python tools/fuzz_server.py --seconds 50             # what CI does; the seed is printed
    python tools/fuzz_server.py --seconds 3600 --only requests --seed 7
    python tools/fuzz_server.py --again FILE

Half of the time schemathesis sends what it makes of /openapi.json; its own checks hold, but that
what the description allows is accepted: options have bounds that it does not state. The other half
are requests of fuzzing/requests.py, which are forms and JSON with any values, damaged forms, and
damaged HTTP, and sessions of fuzzing/websockets.py.

A finding is an answer that tells of a fault of the server (500 and above), that is cut off or takes
longer than 30 s, an error in another form than OpenAI's, a trace in the server's log, a process
that ends, has more than 3 GiB or holds more files than before. Its bytes are kept below `--keep`,
once for each cause, and the exit code is 1. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzzing.processes import MEBIBYTES, SECONDS
from fuzzing.requests import Maker, Request
from fuzzing.websockets import SessionMaker, messages_of
from serving import HOST, ServerProcess

from oscine.audio.decoder_pool import MAX_IDLE

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
GOLDENS = ROOT / "tests" / "goldens"
TRANSCRIBER, SPEAKER = "whisper_multi", "ckpt"
MODELS = (GOLDENS / TRANSCRIBER, GOLDENS / "qwen3_tts" / "custom_voice" / SPEAKER)
SERVER = (
    *("--device", "cpu", "--timeout", "20", "--max-upload-mb", "2", "--max-audio-seconds", "30"),
    *(word for model in MODELS for word in ("--model", str(model))),
)
#: Statuses of a client's mistake; 429 and 503 are none where one client sends.
REFUSALS = (400, 401, 403, 404, 405, 408, 413, 415)
MAX_MESSAGE = 2000  # characters of an error: longer, the request is quoted
MAX_FILES = 2 * MAX_IDLE + 4  # descriptors that may be more at the end
SESSIONS = 0.1  # share of sessions; each is watched for a while
#: Errors of a session that are the client's mistake.
SESSION_ERRORS = (
    *("invalid_json", "invalid_value", "missing_required_parameter", "unknown_parameter"),
    *("unsupported_parameter", "unsupported_value", "string_above_max_length", "file_too_large"),
    *("model_not_found", "voice_not_found"),
)
UNFRAMED_S = 0.3  # for an answer to what may not be a request
#: What schemathesis may not hold: the bounds of options are not in the description.
EXCLUDED = "positive_data_acceptance"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--seconds", type=float, default=50)
    parser.add_argument("--seed", default=time.strftime("%Y-%m-%d"))
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--only", choices=("schema", "requests"))
    parser.add_argument("--keep", type=Path, default=ROOT / ".cache" / "fuzz")
    parser.add_argument("--again", type=Path, help="a file of a finding to send once more")
    return parser.parse_args()


def sent(port: int, raw: bytes, framed: bool = True) -> tuple[int, bytes, str]:
    """Send bytes: status, body and content type of the answer; status 0 where there is none."""
    with socket.create_connection((HOST, port), timeout=SECONDS) as client:
        try:
            client.sendall(raw)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all of it was read
        if not framed:
            client.settimeout(UNFRAMED_S)
        try:
            answer = HTTPResponse(client)
            answer.begin()
            client.settimeout(SECONDS)
            return answer.status, answer.read(), answer.headers.get("content-type", "")
        except TimeoutError:
            return 0, b"", "no answer in time"
        except (HTTPException, OSError) as error:
            return 0, b"", repr(error)


def problem_of(status: int, body: bytes, kind: str, framed: bool) -> str:
    """What is wrong with an answer; empty where nothing is."""
    if not framed and (not status or body == b"Invalid HTTP request received."):
        return ""  # which uvicorn answers
    if status < 400:
        failed = b'"type": "error"' in body and re.search(b'"type": "server_error".*', body)
        return f"a stream ends with {failed[0]!r}" if failed else "" if status else f"cut: {kind}"
    try:
        error = json.loads(body)["error"]
        message = str(error["message"])
        whole = set(error) == {"message", "type", "param", "code"}
    except (ValueError, KeyError, TypeError):
        return f"{status} has another form: {body[:200]!r}"
    if status not in REFUSALS:
        return f"{status} {error['code']}: {message}"
    if not whole or not message or "\n" in message or len(message) > MAX_MESSAGE:
        return f"{status} has a message of other form: {body[:300]!r}"
    return ""


def session(port: int, raw: bytes) -> tuple[int, str]:
    """Send the bytes of a session, and read until it is closed or silent: its status, as that of a
    request, and what is wrong."""
    received = b""
    with socket.create_connection((HOST, port), timeout=SECONDS) as client:
        try:
            client.sendall(raw)
            client.settimeout(UNFRAMED_S)
            while part := client.recv(1 << 16):
                received += part
        except (TimeoutError, OSError):
            pass
    head, _, frames = received.partition(b"\r\n\r\n")
    status = int(head[9:12]) if head[9:12].isdigit() else 0
    if status >= 500:
        return status, f"{status} to the request of a session"
    if status != 101:
        return status, ""
    for message in messages_of(frames):
        try:
            told = json.loads(message)
        except ValueError:
            return status, f"a message is not JSON: {message[:200]!r}"
        if told["type"] == "error" and told["code"] not in SESSION_ERRORS:
            return status, f"a session has the error {message[:500]!r}"
    return status, ""


def send(server: ServerProcess, request: Request) -> tuple[int, str]:
    """Send a request or a session: its status, and what is wrong."""
    started, lines = time.monotonic(), len(server.lines)
    if request.type == "websocket":
        status, problem = session(server.port, request.body)
    else:
        raw = request.raw() if request.framed else request.body
        status, body, kind = sent(server.port, raw, request.framed)
        problem = problem_of(status, body, kind, request.framed)
    spent = time.monotonic() - started
    if spent > SECONDS:
        problem = problem or f"an answer after {spent:.0f} s"
    if server.process.poll() is not None:
        problem = f"the server ended with {server.process.returncode}"
    if status >= 500:
        time.sleep(0.2)  # for its trace
    log = "".join(list(server.lines)[lines:])
    if "Traceback" in log:
        problem = problem or f"a trace in the log: {log[-300:]}"
    return status, problem


def hunt(asked: argparse.Namespace, seconds: float) -> tuple[Counter[str], int]:
    """Send requests until the time is over: how many had which status, and the findings."""
    requests, sessions = Maker(TRANSCRIBER, SPEAKER), SessionMaker(SPEAKER)
    server = ServerProcess(*SERVER)
    statuses, seen, number, findings = Counter[str](), set[str](), asked.first, 0
    before, end = server.held(), time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            label = f"{asked.seed}/{number}"
            random = Random(label)
            maker = sessions if random.random() < SESSIONS else requests
            request = maker.make(random)
            status, problem = send(server, request)
            statuses[str(status)] += 1
            signature = re.sub(r"[\d.]+|'.*", "", problem)[:60]
            if problem and signature not in seen:
                seen.add(signature)
                findings += 1
                keep(asked.keep, f"{asked.seed}-{number}", request)
                print(f"{label}: {problem[:1000]}\n{''.join(server.lines)[-3000:]}", flush=True)
            if server.process.poll() is not None:
                server = ServerProcess(*SERVER)
            number += 1
        after = server.until_idle()
    finally:
        server.kill()
    if after["MB"] > MEBIBYTES or after["files"] > before["files"] + MAX_FILES or after["requests"]:
        findings += 1
        print(f"held before: {before}, after: {after}")
    return statuses, findings


def keep(folder: Path, name: str, request: Request) -> None:
    """Keep the bytes of a request; the suffix is its kind: request, bytes or websocket."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = request.raw() if request.framed else request.body
    kind = "request" if request.framed else request.type or "bytes"
    (folder / f"{name}.{kind}").write_bytes(raw)


def again(file: Path) -> int:
    """Send a finding once more."""
    server = ServerProcess(*SERVER)
    try:
        if file.suffix == ".websocket":
            status, problem = session(server.port, file.read_bytes())
        else:
            framed = file.suffix == ".request"
            status, body, kind = sent(server.port, file.read_bytes(), framed)
            problem = problem_of(status, body, kind, framed)
            print(body[:2000])
        print(f"{status}: {problem}\n{''.join(server.lines)}")
    finally:
        server.kill()
    return int(bool(problem))


def schemathesis(seconds: float, seed: str) -> int:
    """Have schemathesis test the routes of the description: its findings, 0 or 1."""
    server = ServerProcess(*SERVER)
    url = f"http://{HOST}:{server.port}"
    command = [
        *(sys.executable, "-P", "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
        *("--url", url, "--max-time", str(max(1, round(seconds))), "--no-color"),
        *("--checks", "all", "--exclude-checks", EXCLUDED, "--continue-on-failure"),
        *("--seed", str(Random(seed).getrandbits(31)), "--request-timeout", f"{SECONDS:g}"),
        *("--generation-database", "none", "--warnings", "off"),
    ]
    try:
        with TemporaryDirectory() as folder:  # where it keeps what has failed
            ran = subprocess.run(command, text=True, capture_output=True, cwd=folder)
        log = "".join(server.lines)
    finally:
        server.kill()
    failed = ran.returncode or "Traceback" in log
    lines = (ran.stdout + ran.stderr).splitlines()
    print("\n".join(lines if failed else lines[-6:]), flush=True)
    if "Traceback" in log:
        print(log)
    return int(bool(failed))


def main() -> int:
    """The command."""
    asked = arguments()
    if asked.again:
        return again(asked.again)
    print(f"seed {asked.seed}", flush=True)
    seconds, findings = asked.seconds if asked.only else asked.seconds / 2, 0
    if asked.only != "requests":
        findings += schemathesis(seconds, asked.seed)
    if asked.only != "schema":
        statuses, found = hunt(asked, seconds)
        findings += found
        for status, count in sorted(statuses.items()):
            print(f"{count:8} {status if status != '0' else 'no answer'}")
        print(f"{sum(statuses.values())} requests, {found} findings")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
