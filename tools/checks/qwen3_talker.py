"""Qwen3-TTS runs: prompts, the talker's layers, logits, codes and the waveform of each.

Plans are fed the golden prompt and are looked into, frame by frame; the engine is then held to the
same codes from text alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from checks.report import Report, stages
from oscine.engine.scheduler import Engine
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.config import SamplingParams
from oscine.models.qwen3_tts.prompt import Prompt, PromptBuilder, Reference
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sequences import Utterance, UtteranceRequest, initial_state
from oscine.ops import STOP_END, Backend, RmsNorm

if TYPE_CHECKING:
    from checks.qwen3_case import Case

Arrays = dict[str, np.ndarray]

ABSOLUTE = 1e-4  # on NumPy
RELATIVE = 1e-3  # of the largest value, on a GPU, beside the cosine


def check_talker(case: Case, backend: Backend, report: Report) -> set[str]:
    """Every run of a case; names of the arrays that were compared."""
    assert case.weights is not None and case.tokenizer is not None
    runner = Qwen3TtsRunner(case.weights, backend)
    builder = PromptBuilder(case.weights.config, case.tokenizer, runner.tables)
    compared: set[str] = set()
    for run in case.meta["runs"]:
        prefix = f"{run['run']}/"
        own = {
            name.removeprefix(prefix): array
            for name, array in case.arrays.items()
            if name.startswith(prefix)
        }
        compared |= {prefix + name for name in RunCheck(run, own, runner, report).all(builder)}
    return compared


class RunCheck:
    """One run of a case."""

    def __init__(
        self, run: dict[str, Any], arrays: Arrays, runner: Qwen3TtsRunner, report: Report
    ) -> None:
        self.run, self.arrays, self.runner, self.report = run, arrays, runner, report
        self.compared: set[str] = set()

    def all(self, builder: PromptBuilder) -> set[str]:
        """Every stage; names of the arrays compared."""
        prompt = self.check_prompt(builder)
        self.check_steps()
        self.check_engine(prompt)
        self.check_waveform()
        return self.compared

    def array(self, name: str, got: Any) -> None:
        """Hold an array to the golden of the same name."""
        want = self.arrays[name]
        limit = ABSOLUTE
        if self.report.cosines:
            limit = max(limit, RELATIVE * float(np.abs(want).max(initial=0.0)))
        self.report.array(f"{self.run['run']}/{name}", got, want, limit)
        self.compared.add(name)

    def same(self, name: str, got: Any) -> None:
        """Hold ids or codes to the golden of the same name."""
        self.report.same(f"{self.run['run']}/{name}", got, self.arrays[name].tolist())
        self.compared.add(name)

    def request(self, prompt: Prompt) -> UtteranceRequest:
        """As upstream was asked, which does not sound the last of its tokens."""
        greedy = SamplingParams(
            do_sample=False, repetition_penalty=float(self.run["repetition_penalty"])
        )
        return UtteranceRequest(prompt, greedy, greedy, 0, int(self.run["max_new_tokens"]) - 1)

    # -- stages -------------------------------------------------------------------------------

    def check_prompt(self, builder: PromptBuilder) -> Prompt:
        """Ids and rows, from the run's text."""
        run, arrays = self.run, self.arrays
        text, language, instruct = run["text"], run.get("language"), run.get("instruct")
        body, ids = builder.encode_text(text), self.runner.config.text_ids
        newline = builder.role_ids()[2:]
        tail = [ids.im_end, *newline, *builder.role_ids()]
        self.same("input_ids", [*builder.role_ids(), *body, *tail])
        if "instruct_ids" in arrays:
            self.same("instruct_ids", builder.instruct_ids(instruct))
        if "ref_ids" in arrays:
            said = builder.encode_text(run["ref_text"])
            self.same("ref_ids", [*builder.role_ids(), *said, ids.im_end, *newline])
        whole = run.get("non_streaming_mode", run["mode"] != "base")
        if run["mode"] == "custom_voice":
            prompt = builder.custom_voice(
                text, run["speaker"], language, instruct, streamed_text=not whole
            )
        elif run["mode"] == "voice_design":
            prompt = builder.voice_design(text, instruct, language, streamed_text=not whole)
        else:
            reference = Reference(
                arrays["speaker_embedding"], arrays.get("ref_codes"), run.get("ref_text")
            )
            prompt = builder.clone(text, reference, language, streamed_text=not whole)
        self.array("prompt_embeds", prompt.embeddings)
        self.array(
            "trailing_text_hidden", prompt.trailing_text[: len(arrays["trailing_text_hidden"])]
        )
        self.array("tts_pad_embed", prompt.trailing_text[-1])
        return prompt

    def check_steps(self) -> None:
        """Layers, hidden rows and logits of the prompt and of every frame."""
        runner, arrays = self.runner, self.arrays
        backend, networks, talker = runner.backend, runner.networks, runner.talker
        text = np.concatenate([arrays["trailing_text_hidden"], arrays["tts_pad_embed"][None]])
        golden = Prompt(arrays["prompt_embeds"], text)
        request = self.request(golden)
        # And the token that upstream leaves out.
        request = replace(request, max_frames=request.max_frames + 1)
        talker.reserve(1, request.positions, request.trailing_text_rows)
        prompt = backend.zeros(golden.embeddings.shape)
        backend.write(prompt, golden.embeddings)
        talker.write_request(0, request, golden)
        backend.write(talker.buffers.state.rows, initial_state(request))
        buffers = talker.rows(1)
        start = talker.record(
            lambda: model.prefill(backend, networks, buffers, prompt), buffers, "prompt"
        )
        with stages() as seen:
            start.run()
        self.check_prefill(seen)
        frames = len(arrays["codes"])
        with stages() as stepping:
            talker.step_plan(1).run(frames)
        for name, stage, first in (
            ("logits0", "talker.logits", [seen["talker.logits"]]),
            ("step_embeds", "talker.input", []),
            ("step_hidden", "talker.hidden", []),
        ):
            empty = np.zeros((0, arrays[name].shape[1]), np.float32)
            self.array(name, np.concatenate([*first, stepping.get(stage, empty)]))
        row, codes = (backend.read(tensor) for tensor in talker.outputs(1, 1))
        ended = int(row["done"][0]) == STOP_END
        tokens = codes[0, : frames + (not ended), 0].tolist()
        self.same("tokens0", tokens + [runner.config.codec_ids.eos] * ended)
        self.same("stopped_at_eos", int(ended))
        talker.stop([0])
        backend.release(prompt)

    def check_prefill(self, seen: Arrays) -> None:
        """The stages of the prompt and of the first frame."""
        config, networks = self.runner.config, self.runner.networks
        layers = [seen[f"talker.layer{index}"] for index in range(config.talker.num_hidden_layers)]
        self.array("prefill_layers", np.stack(layers))
        self.array("prefill_hidden", self.normed(layers[-1], networks.talker.norm))

        def groups(stage: str) -> list[np.ndarray]:
            return [
                seen[f"predictor.{stage}{group}"] for group in range(config.num_code_groups - 1)
            ]

        self.array("cp_inputs_frame0", np.concatenate(groups("input")))
        rows = np.concatenate(groups("rows"))
        self.array("cp_hidden_frame0", self.normed(rows, networks.code_predictor.norm))
        self.array("cp_logits_frame0", np.concatenate([rows[-1:] for rows in groups("logits")]))

    def normed(self, rows: np.ndarray, norm: RmsNorm) -> np.ndarray:
        """Rows behind a norm that is fused into the layer which follows."""
        backend = self.runner.backend
        x, y = backend.zeros(rows.shape), backend.zeros(rows.shape)
        backend.write(x, rows)
        backend.record(lambda: backend.store(backend.rms_norm(x, norm), y), name="check").run()
        found: np.ndarray = backend.read(y)
        backend.release(x, y)
        return found

    def check_engine(self, prompt: Prompt) -> None:
        """Codes in bursts, from the prompt that oscine makes."""
        utterance = Utterance(self.request(prompt), returns_audio=False)
        Engine(self.runner).submit(utterance)
        codes = [burst.tolist() for burst in utterance.pieces()]
        self.same("codes", [frame for burst in codes for frame in burst])
        # Upstream tells the end from the budget by a token more, which is not sounded here.
        ended = bool(self.arrays["stopped_at_eos"])
        ended = ended and len(self.arrays["codes"]) < utterance.request.max_frames
        wanted = "end" if ended else "length"
        self.report.same(f"{self.run['run']}/finish_reason", utterance.result().reason, wanted)

    def check_waveform(self) -> None:
        """The samples of the golden codes; what a reference sounds like is left out."""
        codec, arrays = self.runner.codec_stream(), self.arrays
        if "ref_codes" in arrays:
            codec.warm_up(arrays["ref_codes"])
        self.array("wav", codec.decode(arrays["codes"]))
        codec.decoder.release_slot(codec.slot)
