#!/usr/bin/env python3
"""Many clients of `oscine serve` on this machine: each answer is what it is alone, nothing grows.

    python tools/serve_load.py [--clients 50] [--seconds 120] [--limit N] [--model tiny.en]
        [--audio FOLDER] [--long 600] [--short-calls 20] [--ties 0.01] [--ignore-times]

The recordings are the English ones of 3 to 30 s of a folder with a manifest, or pieces of the
example. Each is transcribed by the library first, with options of its own. Then the server runs in
a process with room for --limit requests (three quarters of the clients), in three parts:

1. Clients send requests one after another for --seconds. All answers are compared with those of the
   library, and 429 is the only refusal. Meanwhile /health is asked, and memory, descriptors and the
   queue are sampled.
2. A recording of 3 s is sent again and again: alone, beside a recording of --long seconds, and
   beside clients that send their body slowly or leave the answer unread for a while.
3. All clients send a request, and the server gets SIGTERM: what is at work is answered whole, later
   requests are refused with 503 or find no server, and the exit code is 0.

Prints a line for each part, one JSON object, and what is wrong; the exit code is 1 if anything is.
Where tokens differ from those alone, a near tie of two tokens is possible (docs/engine.md), so the
share of such answers is held against --ties. --ignore-times is for machines that others use: times
are printed, and not held. Memory is compared in runs of half a minute and more. Linux only: /proc.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from many_callers import GROWTH, RATE, recordings
from numpy.typing import NDArray
from serving import Answer, ServerProcess, ask, multipart
from soak import GROWTH_MB

import oscine
from oscine.audio.decoder_pool import MAX_IDLE
from oscine.audio.io import open_source
from oscine.audio.write import save
from oscine.types import Audio

ROOT = Path(__file__).resolve().parent.parent
AUDIO = ROOT.parent / "shared" / "audio"
PATH = "/v1/audio/transcriptions"
SHORTEST_S, LONGEST_S, SHORT_S = 3.0, 30.0, 3.0
MAX_RATIO = 5.0  # of the 95th percentile beside a long recording to that alone
HEALTH_S = 2.0  # the longest that 95 of 100 answers of /health may take
SAMPLE_S = 0.5  # between two counts of what is held
MIN_SAMPLES = 60  # for memory to be compared: at first, plans are made and threads started
SLOW, PAUSE_S = 2, 3.0  # clients that take so long to send their body, and as many to read
WHOSE = 20  # characters of a text that is one call's alone
FILES = 2 * MAX_IDLE + 2  # descriptors that may be more at the end: pipes to idle decoders
SHOWN = 20  # problems that are printed

#: Options of the calls, and the form of their answers.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("verbose_json", {"temperature": 0}),
    ("stream", {"temperature": 0}),
    ("verbose_json", {"temperature": 0, "word_timestamps": True}),
    ("verbose_json", {"temperature": 0, "beam_size": 2}),
    ("text", {"temperature": 0, "vad_filter": False}),
    ("verbose_json", {"temperature": 0.4, "seed": 1, "best_of": 1}),
    ("stream", {"temperature": 0, "without_timestamps": True}),
)


@dataclass
class Call:
    """A request that can be sent again and again, and what the library answers."""

    number: int
    name: str
    seconds: float
    form: str
    options: dict[str, Any]
    content: tuple[str, bytes] = field(repr=False)
    text: str = ""
    rows: list[Any] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"call {self.number} ({self.name}, {self.form}, {given})"

    def differs(self, answer: Answer) -> str:
        """How an answer with status 200 is not that of the library; empty if it is."""
        try:
            if self.form == "text":
                return told(self.text, answer.body.decode().strip())
            if self.form == "stream":
                return told(self.text, streamed(answer.body))
            found = json.loads(answer.body)
            if "error" in found:
                return f"its answer is {found}"
        except (ValueError, KeyError, IndexError) as error:
            return f"its answer cannot be read: {error!r}"
        rows = rows_of(found["segments"])
        return (
            "" if rows == self.rows else told(self.text, found["text"]) or "times or tokens differ"
        )


def told(alone: str, text: str) -> str:
    """Where two texts differ; empty for equal ones."""
    if alone == text:
        return ""
    pairs = enumerate(itertools.zip_longest(alone, text))
    at = next(at for at, (one, other) in pairs if one != other)
    return f"character {at}: {alone[at : at + 40]!r} alone, {text[at : at + 40]!r}"


def streamed(body: bytes) -> str:
    """The text of a stream of events. Raises ValueError if its end and its deltas do not agree."""
    lines = [line for line in body.decode().split("\n\n") if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    text = "".join(event["delta"] for event in events[:-1])
    if events[-1].get("type") != "transcript.text.done" or events[-1]["text"] != text:
        raise ValueError(f"the stream ends with {events[-1]}")
    return text


def rows_of(segments: Sequence[Any]) -> list[Any]:
    """What is compared of segments in the form of JSON."""
    return [
        [
            *(segment["text"], round(segment["start"], 2), round(segment["end"], 2)),
            *(list(segment["tokens"]), [word["word"] for word in segment.get("words", ())]),
        ]
        for segment in segments
    ]


def clips(folder: Path, count: int) -> list[tuple[str, NDArray[np.float32]]]:
    """Recordings of 3 to 30 s with their names: of a folder with a manifest, or of the example."""
    manifest = folder / "manifest.jsonl"
    if not manifest.exists():
        made = (each for each in recordings(0, LONGEST_S) if each[0] >= SHORTEST_S)
        return [(f"example {n}", sound) for n, (_, sound) in zip(range(count), made, strict=False)]
    found = []
    for line in manifest.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["language"] == "en" and SHORTEST_S <= row["seconds"] <= LONGEST_S:
            blocks = list(open_source(folder / row["file"]).blocks())
            found.append((row["file"], np.concatenate(blocks).astype(np.float32)))
    return found[:count]


def wav(samples: NDArray[np.float32]) -> bytes:
    """A file of 16-bit samples."""
    file = io.BytesIO()
    save(Audio(samples, RATE), file, "wav")
    return file.getvalue()


def make_call(
    number: int, name: str, samples: NDArray[np.float32], form: str, options: dict[str, Any]
) -> Call:
    """A call with the fields of its options."""
    names = {"temperature": "temperature[]"}
    fields = [(names.get(name, name), json.dumps(value)) for name, value in options.items()]
    answered = [("stream", "true")] if form == "stream" else [("response_format", form)]
    content = multipart([("model", "whisper-1"), *fields, *answered], [("file", wav(samples))])
    return Call(number, name, len(samples) / RATE, form, options, content)


class Results:
    """What came of the requests of one part; its lock."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.statuses: Counter[int] = Counter()
        self.audio, self.seconds = 0.0, list[float]()
        self.others = list[str]()  # answers that differ from those alone
        self.wrong = list[str]()
        self._lock = threading.Lock()

    def take(self, call: Call, answer: Answer, refusals: Sequence[int] = (429,)) -> None:
        """Count an answer, and compare it with that alone."""
        with self._lock:
            self.statuses[answer.status] += 1
            if answer.status == 200:
                self.seconds.append(answer.seconds)
                self.audio += call.seconds
                if problem := call.differs(answer):
                    self._differs(call, answer, problem)
            elif answer.status not in refusals:
                self.wrong.append(f"{call}: status {answer.status}: {answer.body[:300]!r}")
            elif answer.status and (problem := refusal_problem(answer)):
                self.wrong.append(f"{call}: {problem}")

    def _differs(self, call: Call, answer: Answer, problem: str) -> None:
        line = f"{call}: {problem}"
        whose = [
            other for other in self.calls if other.text != call.text and not other.differs(answer)
        ]
        if whose and len(whose[0].text) >= WHOSE:
            self.wrong.append(f"{call} has the answer of {whose[0]}")
        elif "its answer" in problem:
            self.wrong.append(line)
        else:
            self.others.append(line)

    def check(self, ties: float) -> list[str]:
        """What is wrong; nothing where all is well."""
        share = len(self.others) / max(1, self.statuses[200])
        wrong = self.wrong[:SHOWN]
        if share > ties:
            wrong += [f"{100 * share:.1f} % of the answers differ", *self.others[:SHOWN]]
        if not self.statuses[200]:
            wrong.append("no request was answered")
        return wrong

    def summary(self) -> dict[str, Any]:
        """Counts and times."""
        known = {200: "ok", 429: "refused_429", 503: "refused_503", 0: "closed"}
        counts = {known.get(status, str(status)): n for status, n in sorted(self.statuses.items())}
        return {**counts, "differ": len(self.others), "seconds": percentiles(self.seconds)}


def refusal_problem(answer: Answer) -> str:
    """What a refusal lacks; empty if it is clean: OpenAI's error, and when to try again."""
    try:
        error = json.loads(answer.body)["error"]
        if error["code"] not in ("queue_full", "shutting_down"):
            return f"refused with {error}"
        after = int(answer.headers["retry-after"])
        return "" if 1 <= after <= 120 else f"Retry-After is {after}"
    except (ValueError, KeyError, TypeError) as error:
        return f"its refusal is {error!r}: {answer.body[:200]!r}"


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    if not seconds:
        return {}
    values = np.percentile(seconds, (50, 95, 100))
    return dict(zip(("p50", "p95", "max"), (round(float(v), 3) for v in values), strict=True))


# -- part 1 -----------------------------------------------------------------------------------


def many_clients(
    server: ServerProcess, calls: Sequence[Call], asked: argparse.Namespace
) -> tuple[dict[str, Any], list[str]]:
    """Clients, slow ones and observers for some seconds: a summary, and what is wrong."""
    results, health, samples = Results(calls), list[float](), list[dict[str, float]]()
    before, began = server.until_idle(), time.monotonic()
    until = began + asked.seconds

    def client(number: int) -> None:
        chosen = random.Random(number)
        while time.monotonic() < until:
            call = chosen.choice(calls)
            answer = ask(server.port, PATH, call.content)
            results.take(call, answer)
            if answer.status != 200:
                wait = min(5.0, float(answer.headers.get("retry-after", 1)))
                time.sleep(max(0.0, min(wait, until - time.monotonic())))

    def observe() -> None:
        while time.monotonic() < until:
            answer = ask(server.port, "/health")
            health.append(answer.seconds if answer.status == 200 else 600.0)
            samples.append({**server.held(), **server.gauges()})
            time.sleep(SAMPLE_S)

    works: list[Callable[[], None]] = [observe]
    works += [lambda n=n: client(n) for n in range(asked.clients)]  # type: ignore[misc]
    run_all(works)
    spent = time.monotonic() - began
    after = server.until_idle()
    wrong = results.check(asked.ties)
    wrong += grown(samples, before, after, asked.limit)
    if percentiles(health)["p95"] > HEALTH_S and not asked.ignore_times:
        wrong.append(f"/health took {percentiles(health)} s")
    summary = {
        **results.summary(),
        "answers_per_s": round(results.statuses[200] / spent, 3),
        "times_real_time": round(results.audio / spent, 2),
        "health_seconds": percentiles(health),
        "requests_at_most": max(sample["requests_at_work"] for sample in samples),
        "queue_at_most": max(sample["sequences_waiting"] for sample in samples),
        "held_before": before,
        "held_after": after,
        "MB_at_most": max(sample["MB"] for sample in samples),
    }
    return summary, wrong


def run_all(works: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread, to the end of all. An error of one is raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result()


def grown(
    samples: Sequence[dict[str, float]],
    before: dict[str, float],
    after: dict[str, float],
    limit: int,
) -> list[str]:
    """What has grown under load: memory from its middle to its end; what is left when idle."""
    third = max(1, len(samples) // 3)
    middle, end = (
        float(np.mean([sample["MB"] for sample in part]))
        for part in (samples[third : 2 * third] or samples, samples[-third:])
    )
    wrong = []
    if len(samples) >= MIN_SAMPLES and end > middle * GROWTH + GROWTH_MB:
        wrong.append(f"memory has grown from {middle:.0f} MB to {end:.0f} MB under one load")
    if after["files"] > before["files"] + FILES:
        wrong.append(f"descriptors: {before['files']:.0f} before, {after['files']:.0f} after")
    if after["queue"] or after["requests"]:
        wrong.append(f"idle, {after['requests']:.0f} requests and {after['queue']:.0f} sequences")
    if (most := max(sample["requests_at_work"] for sample in samples)) > limit:
        wrong.append(f"{most:.0f} requests at work, where {limit} may be")
    if (most := max(sample["sequences_waiting"] for sample in samples)) > limit:
        wrong.append(f"{most:.0f} sequences waited, of {limit} requests")
    return wrong


# -- part 2 -----------------------------------------------------------------------------------


def short_beside_others(
    server: ServerProcess, short: Call, long: Call, asked: argparse.Namespace
) -> tuple[dict[str, Any], list[str]]:
    """The times of a short recording alone, beside a long one, and beside slow clients."""
    results, others, count = Results([short]), Results([long]), asked.short_calls

    def time_of_short() -> float:
        answer = ask(server.port, PATH, short.content)
        results.take(short, answer, ())
        return answer.seconds

    time_of_short()  # not counted
    alone = percentiles([time_of_short() for _ in range(count)])
    beside = percentiles(times_beside_long(server, long, others, time_of_short, count))
    slow = Results([short])
    slowly = percentiles(times_beside_slow(server, short, slow, time_of_short, count))
    wrong = [*results.check(0.0), *others.wrong, *slow.check(0.0)]
    ratios = {}
    for name, found in (("a long recording", beside), ("slow clients", slowly)):
        ratios[name] = round(found["p95"] / alone["p95"], 2)
        if ratios[name] > MAX_RATIO and not asked.ignore_times:
            wrong.append(f"beside {name} a short one takes {ratios[name]} times as long")
    summary = {
        "alone": alone,
        "beside_long": beside,
        "beside_slow": slowly,
        "p95_ratios": ratios,
        "long_seconds": percentiles(others.seconds),
        "slow_clients": slow.summary(),
    }
    return summary, wrong


def times_beside_long(
    server: ServerProcess, long: Call, into: Results, one: Callable[[], float], count: int
) -> list[float]:
    """`count` times of a short recording while a long one is at work."""
    found = list[float]()
    with ThreadPoolExecutor(1) as pool:
        while len(found) < count:
            running = pool.submit(ask, server.port, PATH, long.content)
            while not server.gauges()["requests_at_work"] and not running.done():
                time.sleep(0.02)
            while len(found) < count and not running.done():
                seconds = one()
                if not running.done():
                    found.append(seconds)
            into.take(long, running.result(), ())
    return found


def times_beside_slow(
    server: ServerProcess, call: Call, into: Results, one: Callable[[], float], count: int
) -> list[float]:
    """`count` times of a short recording while slow clients send and read theirs."""
    done = threading.Event()

    def client(**pace: float) -> None:
        while not done.is_set():
            into.take(call, ask(server.port, PATH, call.content, **pace), ())

    with ThreadPoolExecutor(2 * SLOW) as pool:
        paces = [{name: PAUSE_S} for name in ("send_s", "read_s") for _ in range(SLOW)]
        clients = [pool.submit(client, **pace) for pace in paces]
        try:
            time.sleep(PAUSE_S / 2)
            found = [one() for _ in range(count)]
        finally:
            done.set()
        for each in clients:
            each.result()
    return found


# -- part 3 -----------------------------------------------------------------------------------


def terminated(
    server: ServerProcess, calls: Sequence[Call], clients: int, limit: int
) -> tuple[dict[str, Any], list[str]]:
    """SIGTERM while clients have requests at work."""
    first, late = Results(calls), Results(calls)
    with ThreadPoolExecutor(clients + 1) as pool:
        for call in itertools.islice(itertools.cycle(calls), clients):
            sent = pool.submit(ask, server.port, PATH, call.content)
            sent.add_done_callback(
                lambda done, call=call: first.take(call, done.result(), (429, 503))  # type: ignore[misc]
            )
        end = time.monotonic() + 30
        while (at_work := server.gauges()["requests_at_work"]) < min(clients, limit) / 2:
            if time.monotonic() > end or first.statuses.total() == clients:
                break
            time.sleep(0.02)
        server.terminate()
        began = time.monotonic()
        while (answer := ask(server.port, PATH, calls[0].content)).status:
            late.take(calls[0], answer, (503,))
            time.sleep(0.1)
    code = server.wait()
    wrong = first.wrong + late.wrong + [f"late: {line}" for line in late.others]
    if late.statuses[200] > 1:  # one can be read before the signal is
        wrong.append(f"{late.statuses[200]} requests were taken after SIGTERM")
    if first.statuses[200] < at_work:
        wrong.append(f"of {at_work:.0f} requests at work {first.statuses[200]} were answered")
    if not late.statuses[503]:
        wrong.append("no request came after SIGTERM")
    if code:
        wrong.append(f"the server ended with {code}: {''.join(list(server.lines)[-20:])}")
    summary = {
        "at_work": at_work,
        "first": first.summary(),
        "late": late.summary(),
        "ended_after": round(time.monotonic() - began, 1),
        "exit_code": code,
    }
    return summary, wrong


def answer_alone(model: Any, calls: Sequence[Call], sounds: Sequence[Any]) -> float:
    """Have the library answer each call, and return the seconds that it takes."""
    began = time.monotonic()
    for call, samples in zip(calls, sounds, strict=True):
        found = model.transcribe(io.BytesIO(wav(samples)), **call.options)
        call.text = found.text.strip()
        call.rows = rows_of([segment.to_dict() for segment in found.segments])
    return time.monotonic() - began


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="tiny.en", help="a Whisper: its name or folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--limit", type=int, help="requests at work; 3/4 of the clients")
    parser.add_argument("--audio", type=Path, default=AUDIO, help="recordings with a manifest")
    parser.add_argument("--calls", type=int, default=len(OPTIONS) * 2, help="different requests")
    parser.add_argument("--long", type=float, default=600.0, help="seconds of the long recording")
    parser.add_argument("--short-calls", type=int, default=20)
    parser.add_argument("--ties", type=float, default=0.01, help="share of answers that may differ")
    parser.add_argument("--ignore-times", action="store_true", help="hold no time")
    asked = parser.parse_args()
    asked.limit = asked.limit or max(2 * SLOW + 2, asked.clients * 3 // 4)
    return asked


def report(name: str, part: tuple[dict[str, Any], list[str]], wrong: list[str]) -> dict[str, Any]:
    """Print a part, add what is wrong in it, and return its summary."""
    summary, problems = part
    print(f"{name} (load average {os.getloadavg()[0]:.1f})")
    for key, value in summary.items():
        print(f"    {key.replace('_', ' '):18} {value}", flush=True)
    wrong += [f"{name}: {problem}" for problem in problems]
    return summary


def main() -> int:
    """The command."""
    asked = arguments()
    sounds = clips(asked.audio, asked.calls)
    named = list(itertools.islice(itertools.cycle(sounds), asked.calls))
    calls = [
        make_call(number, name, samples, *OPTIONS[number % len(OPTIONS)])
        for number, (name, samples) in enumerate(named)
    ]
    joined = np.concatenate([samples for _, samples in sounds])
    parts = [joined[: round(SHORT_S * RATE)], np.resize(joined, round(asked.long * RATE))]
    short, long = (make_call(90 + n, "part", part, *OPTIONS[n]) for n, part in enumerate(parts))
    model: Any = oscine.load(asked.model, asked.device)
    spent = answer_alone(model, [*calls, short], [*(sound for _, sound in named), parts[0]])
    audio = sum(call.seconds for call in calls)
    print(f"alone: {len(calls)} calls, {audio / spent:.1f} times real time on {model.device}")
    del model
    wrong, out = list[str](), dict[str, Any]()
    server = ServerProcess(
        *("--device", asked.device, "--model", asked.model, "--max-requests", str(asked.limit)),
        *("--drain", "300", "--timeout", "900"),
    )
    try:
        out["many"] = report("many clients", many_clients(server, calls, asked), wrong)
        beside = short_beside_others(server, short, long, asked)
        out["beside"] = report("short beside others", beside, wrong)
        ended = terminated(server, calls, asked.clients, asked.limit)
        out["terminated"] = report("SIGTERM", ended, wrong)
    finally:
        server.kill()
    print(
        json.dumps(
            {**vars(asked), "audio": bool(sounds), "cores": os.cpu_count(), **out}, default=str
        )
    )
    print("\n".join(wrong) if wrong else "every answer is what it is alone, and nothing has grown")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
