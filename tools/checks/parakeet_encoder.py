"""The encoder's part of Parakeet cases, stage by stage from the golden features."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from checks.report import Report, stages
from oscine import ops
from oscine.audio.mel_nemo import log_mel
from oscine.models.parakeet import model
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.ops import Backend, Tensor

if TYPE_CHECKING:
    from checks.parakeet import Case

POSITIONS, SUBSAMPLED, ENCODER, LOGITS = 1e-5, 2e-3, 1e-3, 2e-3
SPARE = 5  # encoder frames of padding in the batch of both recordings


class Encoder:
    """An uploaded encoder and the distances of frames in it; each call records one plan."""

    def __init__(self, weights: ParakeetWeights, backend: Backend, reach: int) -> None:
        self.config, self.backend = weights.config, backend
        self.w = ops.upload(backend, weights.encoder)
        shape = 2 * reach - 1, self.config.d_model
        self.distances = [backend.zeros(shape) for _ in range(self.config.n_layers)]
        projected = lambda: model.project_positions(backend, self.w, self.config, reach)  # noqa: E731
        self.keep(projected, self.distances)

    def keep(self, trace: Callable[[], list[Tensor]], slots: list[Tensor]) -> None:
        """Run a plan whose results go to slots."""

        def record() -> None:
            for x, slot in zip(trace(), slots, strict=True):
                self.backend.store(x, slot)

        self.backend.record(record, name="check").run()

    def result(
        self,
        mels: np.ndarray,
        frames: list[int],
        width: int,
        stage: Callable[[Tensor, Tensor], Tensor],
    ) -> np.ndarray:
        """stage(mel, frames) of features [B, n, n_mels]: [B, T, width]."""
        batch, n, n_mels = mels.shape
        mel = self.backend.zeros((batch * n, n_mels))
        lengths = self.backend.zeros((batch,), np.uint32)
        self.backend.write(mel, mels)
        self.backend.write(lengths, np.array(frames, np.uint32))
        rows = -(-n // self.config.subsampling_factor)
        out = self.backend.zeros((batch * rows, width))
        self.keep(lambda: [stage(mel, lengths)], [out])
        return self.backend.read(out).reshape(batch, rows, width)

    def encode(self, mel: Tensor, frames: Tensor, reach: int | None = None) -> Tensor:
        """model.encode, with a band that reaches equally far to both sides."""
        attention_window = None if reach is None else (reach, reach)
        return model.encode(
            self.backend, self.w, self.config, mel, frames, self.distances, attention_window
        )


def check_encoder(case: Case, backend: Backend, report: Report) -> set[str]:
    """Positions, every stage, bands, a padded batch, the heads."""
    golden, config = case.arrays, case.weights.config
    mel, rows = np.ascontiguousarray(golden["mel"])[None], len(golden["enc_out"])
    encoder = Encoder(case.weights, backend, rows + SPARE)
    compared = set()

    def compare(
        name: str, stage: Callable[[Tensor, Tensor], Tensor], limit: float = ENCODER
    ) -> None:
        compared.add(name)
        width = golden[name].shape[1]
        (found,) = encoder.result(mel, [mel.shape[1]], width, stage)
        report.array(name, found, golden[name], limit)

    table = backend.zeros(golden["pos_emb"].shape)
    encoder.keep(lambda: [backend.relative_positions(rows, config.d_model)], [table])
    report.array("pos_emb", backend.read(table), golden["pos_emb"], POSITIONS)
    compared.add("pos_emb")
    with stages() as seen:
        compare("enc_out", encoder.encode)
    scale = config.d_model**0.5 if config.xscaling else 1.0
    subsampled = seen["encoder.subsampled"] / scale
    report.array("subsampled", subsampled, golden["subsampled"], SUBSAMPLED)
    names = {f"blk0_after_{part}": f"layer0.{part}" for part in ("ff1", "attn", "conv")}
    names |= {f"enc_layer{layer}": f"layer{layer}" for layer in range(config.n_layers)}
    for name, stage in names.items():
        report.array(name, seen[f"encoder.{stage}"], golden[name], ENCODER)
    compared |= {"subsampled", *names}
    for name in (name for name in golden if name.startswith("local")):
        reach = int(name.removeprefix("local").removesuffix("_enc_out"))
        compare(name, lambda m, f, r=reach: encoder.encode(m, f, reach=r))
    transducer = case.weights.transducer
    heads = {"ctc_logits": case.weights.ctc, "enc_proj": transducer and transducer.joint_enc}
    for name in (name for name in heads if name in golden):
        head = ops.upload(backend, heads[name])
        compare(name, lambda m, f, h=head: backend.linear(encoder.encode(m, f), h), LOGITS)
    return compared | check_batch(case, encoder, report)


def check_batch(case: Case, encoder: Encoder, report: Report) -> set[str]:
    """Both recordings padded into one batch give what each gives alone."""
    golden, config = case.arrays, case.weights.config
    mels = [golden["mel"], log_mel(case.short, config.n_mels)]
    frames = [len(mel) for mel in mels]
    length = -(-max(frames) // config.subsampling_factor) + SPARE
    both = np.full((2, length * config.subsampling_factor, config.n_mels), 9, np.float32)  # void
    for padded, mel in zip(both, mels, strict=True):
        padded[: len(mel)] = mel
    found = encoder.result(both, frames, config.d_model, encoder.encode)
    for name, rows in zip(("enc_out", "short_enc_out"), found, strict=True):
        want = golden[name]
        report.array(f"{name} in a batch", rows[: len(want)], want, ENCODER)
    return {"short_enc_out"}


def check_file(
    key: str,
    weights: ParakeetWeights,
    arrays: dict[str, np.ndarray],
    backend: Backend,
    report: Report,
) -> set[str]:
    """One of many files of the same weights: its encoder, and its CTC head if it has one."""
    mel = np.ascontiguousarray(arrays["mel"])[None]
    encoder = Encoder(weights, backend, len(arrays["enc_out"]))
    frames = [mel.shape[1]]
    (found,) = encoder.result(mel, frames, weights.config.d_model, encoder.encode)
    report.array(f"{key}: enc_out", found, arrays["enc_out"], ENCODER)
    if weights.ctc is None:
        return {"enc_out"}
    head, name = ops.upload(backend, weights.ctc), "hybrid_ctc_logits"
    (found,) = encoder.result(
        mel, frames, arrays[name].shape[1], lambda m, f: backend.linear(encoder.encode(m, f), head)
    )
    report.array(f"{key}: {name}", found, arrays[name], LOGITS)
    return {"enc_out", name}
