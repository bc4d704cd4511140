#!/usr/bin/env python3
"""Many threads share one Whisper: each answer is what it is alone, and nothing is left behind.

    python tools/many_callers.py [--seconds 600] [--threads 64] [--jobs 64] [--longest 60]
        [--model tiny.en] [--device cpu] [--round 30] [--ties 0.01] [--fixed-rows N]

Jobs are recordings of 1 to --longest seconds, made of the example and noise, each with options of
its own: temperatures with seeds, beams, samples, word times, text only, batches, tasks and
languages where the model knows them, live streams, and callers that leave after the first segment.
Each job is answered alone first, one after another. Then the threads take jobs at random, in rounds
at whose end all threads are done; then memory, open files, threads and slots are counted.

Where the tokens of an answer are others than alone, the first difference is printed, with the
change of the mean log-probability. In batches of another size sums are rounded otherwise, so that
of two tokens whose logits are equal as far as rounding goes, the other may win: a near tie. The
logits are not to be seen from here, so the share of answers that differ is held against --ties.
With --fixed-rows every step is recorded for that many rows, alone and together.

What is held at the end is compared with what was held after the first rounds, in which plans are
made; a run of few rounds has nothing to compare. Exit code 1 where an answer is another job's, more
than --ties of them differ, a call fails, a slot stays in use, something has grown, or no burst had
sequences of two callers. Linux only: /proc.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import threading
import time
import wave
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from soak import GROWTH_MB, held

import oscine
from oscine.engine.batch import Occupancy

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "spoken.wav"
RATE = 16000
GROWTH = 1.05  # of memory, beside GROWTH_MB: fragments of what many threads have given back
TELLING = 8  # tokens of an answer that is one job's alone
SHOWN = 20  # differences that are printed
WARM_ROUNDS = 5  # in which plans are still recorded for the first time
AGAIN = 4  # of so many jobs one is answered alone twice
PIECE = 0.4  # seconds that a live caller hands over at once

#: How a job calls the model, and with which options; those of LANGUAGES for multilingual models.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transcribe", {}),
    ("transcribe", {"temperature": 0, "vad_filter": False}),
    ("transcribe", {"temperature": 0.4, "seed": 1, "best_of": 1}),
    ("transcribe", {"temperature": (0.2, 0.8), "seed": 2, "best_of": 3}),
    ("transcribe", {"word_timestamps": True, "temperature": 0}),
    ("transcribe", {"beam_size": 3, "temperature": 0}),
    ("transcribe", {"beam_size": 2, "temperature": 0, "word_timestamps": True}),
    ("transcribe", {"without_timestamps": True, "temperature": 0, "sample_len": 40}),
    ("transcribe", {"batch_size": 4, "temperature": 0}),
    (
        "transcribe",
        {"batch_size": 8, "word_timestamps": True, "temperature": (0.0, 0.6), "seed": 3},
    ),
    ("transcribe", {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "temperature": 0}),
    ("transcribe", {"initial_prompt": "Speech engines.", "temperature": 0}),
    ("transcribe", {"suppress_tokens": (-1, 11, 13), "suppress_blank": False, "temperature": 0}),
    ("first", {"temperature": 0}),
    ("live", {"temperature": 0}),
)
LANGUAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transcribe", {"language": "en", "task": "translate", "temperature": 0}),
    ("transcribe", {"language": "de", "temperature": 0}),
    ("transcribe", {"language": "es", "temperature": 0.3, "seed": 4, "best_of": 2}),
    ("transcribe", {"multilingual": True, "temperature": 0}),
)


@dataclass(frozen=True)
class Answer:
    """What can be compared: texts and times by segment, and the tokens one after another."""

    parts: tuple[Any, ...]
    tokens: tuple[int, ...]
    avg_logprob: float

    @classmethod
    def of(cls, segments: Sequence[Any], *more: Any) -> Answer:
        """Of segments in order. Attempts at two temperatures with the same tokens may tie, so which
        of them it was is not compared."""
        parts = [
            (s.text, round(s.start, 2), round(s.end, 2), s.language, timed(s.words))
            for s in segments
        ]
        tokens = [token for segment in segments for token in segment.tokens]
        logprobs = [segment.avg_logprob for segment in segments]
        return cls((*more, *parts), tuple(tokens), float(np.mean(logprobs)) if logprobs else 0.0)


def timed(words: Sequence[Any] | None) -> tuple[Any, ...]:
    """Words as they are compared."""
    return tuple((word.word, round(word.start, 2), round(word.end, 2)) for word in words or ())


@dataclass(frozen=True)
class Job:
    """One call that can be made again and again."""

    number: int
    seconds: float
    how: str
    options: dict[str, Any]
    samples: NDArray[np.float32] = field(repr=False)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"job {self.number} ({self.how}, {self.seconds:.1f} s, {given or 'no options'})"

    def answer(self, model: Any) -> Answer:
        """What the model says."""
        if self.how == "live":
            pieces = np.array_split(self.samples, max(1, round(self.seconds / PIECE)))
            updates = model.listen(iter(pieces), **self.options)
            return Answer((timed([word for update in updates for word in update.final]),), (), 0.0)
        if self.how == "first":
            stream = model.stream(self.samples, **self.options)
            return Answer.of(list(itertools.islice(stream, 1)))
        found = model.transcribe(self.samples, **self.options)
        return Answer.of(found.segments, found.language)


def recordings(seed: int, longest: float) -> Iterator[tuple[float, NDArray[np.float32]]]:
    """Sounds of mixed lengths, short ones above all, without end: the example from some place on,
    with pauses, noise, and another level."""
    rng = np.random.default_rng(seed)
    with wave.open(str(EXAMPLE)) as file:
        example = (
            np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        )
    while True:
        seconds = float(min(longest, 1.0 + rng.exponential(longest / 4)))
        count = round(seconds * RATE)
        sound = np.tile(
            np.roll(example, -int(rng.integers(len(example)))), count // len(example) + 1
        )
        sound = sound[:count] * rng.uniform(0.3, 1.0)
        start = int(rng.integers(count))
        sound[start : start + int(rng.integers(RATE, 3 * RATE))] *= rng.choice([0.0, 1.0])
        noise = rng.standard_normal(count) * rng.choice([0.0, 0.002, 0.02])
        yield seconds, np.clip(sound + noise, -1, 1).astype(np.float32)


def make_jobs(model: Any, count: int, longest: float, seed: int) -> list[Job]:
    """Jobs in which every kind of options occurs, with sounds of their own."""
    kinds = OPTIONS + (LANGUAGES if model.multilingual else ())
    sounds = recordings(seed, longest)
    jobs = []
    for number, (how, options) in zip(range(count), itertools.cycle(kinds), strict=False):
        seconds, samples = next(sounds)
        if how == "live":  # it is transcribed again and again
            seconds = min(seconds, 6.0)
            samples = samples[: round(seconds * RATE)]
        jobs.append(Job(number, seconds, how, options, samples))
    return jobs


class Results:
    """What the threads have found; their lock."""

    def __init__(self, jobs: Sequence[Job], alone: Sequence[Answer]) -> None:
        self.jobs, self.alone = jobs, alone
        self.answers = self.audio = 0.0
        self.others: Counter[str] = Counter()  # answers that are not those alone, by kind
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def take(self, job: Job, answer: Answer) -> None:
        """Compare an answer with that alone."""
        with self._lock:
            self.answers += 1
            self.audio += job.seconds
            known = self.alone[job.number]
            if answer.parts == known.parts and answer.tokens == known.tokens:
                return
            kind = "times" if answer.tokens == known.tokens else "tokens"
            self.others[kind] += 1
            whose = [
                j for j, a in zip(self.jobs, self.alone, strict=True) if a.parts == answer.parts
            ]
            if whose and len(answer.tokens) >= TELLING:
                self.failures.append(f"{job} has the answer of {whose[0]}")
            elif self.others.total() <= SHOWN:
                print(f"differs: {job}: {difference(known, answer)}", flush=True)

    def fail(self, job: Job, error: BaseException) -> None:
        """A call that ended with an error."""
        with self._lock:
            self.failures.append(f"{job}: {type(error).__name__}: {error}")


def difference(alone: Answer, together: Answer) -> str:
    """Where two answers begin to differ."""
    if alone.tokens == together.tokens:
        pairs = zip(alone.parts, together.parts, strict=False)
        return next((f"{a} alone, {b}" for a, b in pairs if a != b), "one is longer")
    pairs = itertools.zip_longest(alone.tokens, together.tokens)
    at, (a, b) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    change = together.avg_logprob - alone.avg_logprob
    return f"token {at} of {len(alone.tokens)} is {a} alone, {b}; avg_logprob {change:+.4f}"


def run_round(model: Any, results: Results, threads: int, until: float, seed: int) -> None:
    """Threads that take jobs at random until it is time, and end what they are at."""

    def work(number: int) -> None:
        chosen = random.Random(seed * 1000 + number)
        while time.monotonic() < until:
            job = chosen.choice(results.jobs)
            try:
                results.take(job, job.answer(model))
            except Exception as error:
                results.fail(job, error)

    callers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


def alone(model: Any, jobs: Sequence[Job]) -> tuple[list[Answer], float]:
    """Every job's answer, one after another, and the seconds that they take.

    Some are asked for again: alone, an answer is always the same.
    """
    jobs[0].answer(model)  # not counted: it makes plans
    started = time.monotonic()
    answers = [job.answer(model) for job in jobs]
    spent = time.monotonic() - started
    for job in jobs[::AGAIN]:
        if job.answer(model) != answers[job.number]:
            raise SystemExit(f"{job}, alone both times, has two answers")
    return answers, spent


def since(before: Occupancy, now: Occupancy) -> Occupancy:
    """What an engine's batches were filled with after a moment."""
    return replace(
        now,
        bursts=now.bursts - before.bursts,
        rows=now.rows - before.rows,
        sequences=now.sequences - before.sequences,
        multi_caller_bursts=now.multi_caller_bursts - before.multi_caller_bursts,
    )


def told(occupancy: Occupancy, results: Results, spent: float, now: dict[str, float]) -> str:
    """One line of a round."""
    counted = ", ".join(f"{value:.0f} {name}" for name, value in now.items())
    return (
        f"{spent:.0f} s: {results.answers:.0f} answers, {results.others.total()} differ; "
        f"{occupancy.mean:.2f} sequences a burst, {occupancy.max_sequences} at most, "
        f"{occupancy.multi_caller_bursts} of {occupancy.bursts} bursts with several callers; "
        f"{counted}"
    )


def counted(model: Any) -> dict[str, float]:
    """What is held once all callers have left."""
    deadline = time.monotonic() + 10
    while (model.engine.running or model.engine.waiting) and time.monotonic() < deadline:
        time.sleep(0.05)  # what callers gave up leaves at the next poll
    return {**held(), "slots": model.engine.running + model.engine.waiting}


def grown(rounds: Sequence[dict[str, float]]) -> list[str]:
    """What is more at the end than it was once caches were filled; of memory, after some rounds."""
    first, last = rounds[max(min(WARM_ROUNDS, len(rounds) - 1), len(rounds) // 3)], rounds[-1]
    most = {**first, "MB": first["MB"] * GROWTH + GROWTH_MB, "slots": 0.0}
    return [
        f"{name}: {first[name]:.0f}, then {last[name]:.0f}"
        for name in last
        if last[name] > most[name]
    ]


def verdict(
    occupancy: Occupancy, results: Results, ties: float, rounds: list[dict[str, float]]
) -> list[str]:
    """What is wrong; nothing where all is well."""
    wrong = results.failures[:SHOWN]
    share = results.others.total() / max(1, results.answers)
    if share > ties:
        wrong.append(f"{100 * share:.2f} % of the answers differ, {100 * ties:.2f} % may")
    if not occupancy.multi_caller_bursts or occupancy.mean <= 1:
        wrong.append("no two callers were at work in one burst")
    return wrong + grown(rounds)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="tiny.en", help="a Whisper: its name or folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=64)
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of a recording")
    parser.add_argument("--round", type=float, default=30.0, help="seconds between two counts")
    parser.add_argument("--ties", type=float, default=0.01, help="share of answers that may differ")
    parser.add_argument("--fixed-rows", type=int, help="sequences that every step is recorded for")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model: Any = oscine.load(options.model, options.device)
    if options.fixed_rows:
        model.engine.fix_rows(options.fixed_rows)
    jobs = make_jobs(model, options.jobs, options.longest, options.seed)
    answers, seconds = alone(model, jobs)
    audio = sum(job.seconds for job in jobs)
    print(
        f"{model.name} on {model.device}; alone: {len(jobs)} jobs, {len(jobs) / seconds:.2f} "
        f"answers a second, {audio / seconds:.1f} times real time",
        flush=True,
    )
    before = replace(model.engine.occupancy)
    results, rounds, began = Results(jobs, answers), list[dict[str, float]](), time.monotonic()
    while len(rounds) < 3 or time.monotonic() < began + options.seconds:
        left = max(0.0, began + options.seconds - time.monotonic())
        until = time.monotonic() + min(options.round, max(left, 1.0))
        run_round(model, results, options.threads, until, options.seed + len(rounds))
        rounds.append(counted(model))
        used = since(before, model.engine.occupancy)
        print(told(used, results, time.monotonic() - began, rounds[-1]), flush=True)
    spent = time.monotonic() - began
    print(
        f"together: {results.answers / spent:.2f} answers a second, {results.audio / spent:.1f} "
        f"times real time; of {results.answers:.0f} differ {dict(results.others) or 'none'}"
    )
    wrong = verdict(used, results, options.ties, rounds)
    print("\n".join(wrong) if wrong else "every answer is what it is alone, and nothing has grown")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
