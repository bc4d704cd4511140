"""Linear layers and norms on the GPU: the choice of the kernel, and when a norm is fused."""

from __future__ import annotations

from math import ceil

from oscine.gpu.tensor import Tensor
from oscine.ops.types import Activation, LayerNorm, Linear, RmsNorm
from oscine.ops.webgpu.gemm import ACTIVATIONS, MAX_SKINNY_ROWS, Gemm
from oscine.ops.webgpu.gemv import MAX_GEMV_ROWS, Gemv
from oscine.ops.webgpu.recorder import MAX_WORKGROUPS, store_dtype


class GpuLinear(Gemv, Gemm):
    """Records the ops of oscine.ops.reference.linear, which has their definitions."""

    def layer_norm(self, x: Tensor, norm: LayerNorm) -> Tensor:
        return self.normalise(x, norm, self.intermediate(*x.shape))

    def rms_norm(self, x: Tensor, norm: RmsNorm) -> Tensor:
        return self.normalise(x, norm, self.intermediate(*x.shape))

    def normalise(self, x: Tensor, norm: LayerNorm | RmsNorm, y: Tensor) -> Tensor:
        """Record the norm of x into y, float32, or float16 for matrix units."""
        rows, width = x.shape
        self.check_multiple_of_4("norm width", width)
        reduce, grid = self.row_reduce(rows, width)
        bias = [norm.bias] if isinstance(norm, LayerNorm) else []
        self.dispatch(
            "layer_norm" if bias else "rms_norm",
            [x, norm.weight, *bias, y],
            grid,
            work=8.0 * rows * width,
            ROWS=rows, WIDTH4=width // 4, EPS=norm.eps, STORE=store_dtype(y), **reduce,
        )  # fmt: skip
        return y

    def linear(
        self,
        x: Tensor,
        linear: Linear,
        *,
        norm: LayerNorm | RmsNorm | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        rows, width = x.shape
        self.check_multiple_of_4("linear input width", width)
        y = self.intermediate(rows, linear.weight.shape[0])
        if norm is not None and not self.can_fuse_norm(norm, rows, linear):
            matrix = self.can_use_matrix_units(rows, linear, K4=width // 4)
            normal = (
                self.intermediate_f16(rows, width) if matrix else self.intermediate(rows, width)
            )
            x, norm = self.normalise(x, norm, normal), None
        if rows <= MAX_GEMV_ROWS:
            self.gemv(x, linear, y, norm, activation, add)
        elif rows <= MAX_SKINNY_ROWS:
            self.gemm_skinny(x, linear, y, norm, activation, add)
        else:
            self.gemm(x, linear, y, activation, add, K4=width // 4, X_STRIDE4=width // 4)
        return y

    def swiglu_linear(
        self, x: Tensor, linear: Linear, *, norm: LayerNorm | RmsNorm | None = None
    ) -> Tensor:
        rows, width = x.shape[0], linear.weight.shape[0] // 2
        y = self.intermediate(rows, width)
        if rows <= MAX_GEMV_ROWS and not linear.weight.parts:
            self.check_multiple_of_4("linear input width", x.shape[1])
            if isinstance(norm, LayerNorm):
                x, norm = self.layer_norm(x, norm), None
            self.gemv_gated(x, Linear(linear.weight, None), y, norm, "silu", None, gated=True)
            return y
        self.check_multiple_of_4("gated width", width)
        both = self.linear(x, linear, norm=norm)
        self.dispatch(
            "swiglu", [both, y], (ceil(width / 256), min(rows, MAX_WORKGROUPS)),
            ROWS=rows, WIDTH4=width // 4, ACTIVATION=ACTIVATIONS.index("silu"),
        )  # fmt: skip
        return y
