"""The ops that decode transducers and CTC, on the GPU.

Shapes and meaning: oscine.ops.reference.transducer. A step is one dispatch a layer of the
prediction network, and four more: join, the head's linear layer, transducer_step_partial and
transducer_step.
"""

from __future__ import annotations

from math import ceil

from oscine.errors import DeviceError
from oscine.gpu.kernels import Parameter
from oscine.gpu.tensor import Tensor
from oscine.ops.state import TRANSDUCER_PARAMS_HEAD, ContextGraphTensors, LstmState, TransducerState
from oscine.ops.types import Linear, LstmCell
from oscine.ops.webgpu.recorder import Recorder, weights_of

CHUNK = 1024  # maximum of logits a workgroup of a first pass
WORKGROUP = 64  # invocations of a workgroup of subgroups
MAX_BLOCK_FRAMES = 128  # frames of a block
GRID_WIDTH = 32768  # workgroups along one axis


class GpuTransducer(Recorder):
    """Records the ops of oscine.ops.reference.transducer, which has their definitions."""

    def row_groups(self, rows: int) -> tuple[dict[str, Parameter], int]:
        """Parameters and number of workgroups for `rows` sums, a subgroup or a workgroup each.

        Subgroups of 64 or 128 lanes take two sums one after another.
        """
        if self.workgroup_reduce == "shared":
            return {"ROW_REDUCE": "shared"}, rows
        return {"ROW_REDUCE": "subgroup", "WORKGROUP": WORKGROUP}, ceil(rows / 2)

    def prediction_network(
        self, table: Tensor, cells: tuple[LstmCell, ...], memory: LstmState, state: TransducerState
    ) -> None:
        rows, width = state.rows.shape[0], table.shape[1]
        if width % 4:
            raise DeviceError(
                f"{self.name}: a prediction network of width {width} is not a multiple of 4, as "
                "kernels need; NumPy takes any"
            )
        reduce, groups = self.row_groups(width)
        for layer, cell in enumerate(cells):
            weights = table, cell.input.weight, cell.hidden.weight
            kinds = {weights_of(weight) for weight in weights}
            if len(kinds) > 1 or any(weight.parts for weight in weights):
                raise DeviceError(
                    f"{self.name}: the weights of a prediction network must have one dtype"
                )
            self.dispatch(
                "lstm",
                [
                    table, cell.input.weight, cell.input.bias, cell.hidden.weight,
                    state.rows, memory.hidden, memory.cell,
                ],
                (groups, ceil(rows / 4)),
                work=64.0 * rows * width * width,  # it waits for memory, not for sums
                ROWS=rows, LAYERS=len(cells), LAYER=layer, P4=width // 4, WEIGHTS=kinds.pop(),
                **reduce,
            )  # fmt: skip

    def joint_network(
        self, x: Tensor, project: Linear, memory: LstmState, state: TransducerState, block: int
    ) -> Tensor:
        (joint, width), rows = project.weight.shape, state.rows.shape[0]
        y = self.intermediate(rows * block, joint)
        reduce, groups = self.row_groups(joint)
        self.dispatch(
            "joint_network",
            [x, project.weight, project.bias, state.rows, memory.hidden, memory.joint, y],
            (groups, rows),
            work=8.0 * rows * joint * width,
            LAYERS=memory.hidden.shape[1], P4=width // 4, J=joint, AHEAD=block,
            BIAS=project.bias is not None, WEIGHTS=weights_of(project.weight), **reduce,
        )  # fmt: skip
        return y

    def transducer_step(
        self,
        logits: Tensor,
        params: Tensor,
        state: TransducerState,
        boost: ContextGraphTensors | None = None,
    ) -> None:
        (logit_rows, stride), capacity = logits.shape, state.decisions.shape[1]
        rows, durations = state.rows.shape[0], params.shape[0] - TRANSDUCER_PARAMS_HEAD
        block = logit_rows // rows
        if block > MAX_BLOCK_FRAMES:
            raise DeviceError(f"{self.name}: a block of {block} frames is above {MAX_BLOCK_FRAMES}")
        tokens = stride - durations
        chunks = ceil(tokens / CHUNK)
        parts = self.intermediate(logit_rows, chunks, 6)
        tree = [None, None] if boost is None else [boost.nodes, boost.arcs]
        self.dispatch(
            "transducer_step_partial", [logits, state.rows, *tree, parts], (chunks, logit_rows),
            AHEAD=block, TOKENS=tokens, STRIDE=stride, CHUNK=ceil(tokens / chunks),
            BOOST=boost is not None, WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        self.dispatch(
            "transducer_step", [parts, logits, params, state.rows, state.decisions, *tree], (rows,),
            AHEAD=block, CHUNKS=chunks, STRIDE=stride, DURATIONS=durations, CAPACITY=capacity,
            BOOST=boost is not None,
        )  # fmt: skip

    def argmax_prob(self, logits: Tensor) -> Tensor:
        rows, width = logits.shape
        y = self.intermediate(rows, 2)
        self.dispatch(
            "argmax_prob", [logits, y], (min(rows, GRID_WIDTH), ceil(rows / GRID_WIDTH)),
            ROWS=rows, WIDTH=width, WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        return y
