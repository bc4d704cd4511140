"""The op vocabulary: what the forward pass of a model is written in, on NumPy and on a GPU alike.

`ops.reference` defines each op in NumPy, by kind. `ops.webgpu` has the same names; there each call
adds dispatches to the plan that is recorded. Ops return new tensors; operands that they write in
place they declare (`ops.effects`).

Shapes: R rows, D model width, V vocabulary, S encoder positions, C cache length; B sequences are
computed side by side, each with a row of state, L rows of each in one pass; W encoded windows; N
slots: what a sequence keeps from pass to pass is at the index that its state's `slot` names.
Every activation is float32. Weights are float32, float16, bfloat16 (oscine.dtypes), or, of products
and embed, in blocks of 8 or 4 bits (oscine.quantized); sums are always float32. The keys and values
of cross-attention are float32, or float16 where their buffer is.
"""

from __future__ import annotations

from oscine.ops.backend import Backend as Backend
from oscine.ops.backend import Plan as Plan
from oscine.ops.backend import check_free_memory as check_free_memory
from oscine.ops.backend import copy_starts as copy_starts
from oscine.ops.backend import upload as upload
from oscine.ops.reference.vocabulary import Ops as Ops
from oscine.ops.state import DECODE_PARAMS as DECODE_PARAMS
from oscine.ops.state import FINISHED_BEAM as FINISHED_BEAM
from oscine.ops.state import GRAPH_ARC as GRAPH_ARC
from oscine.ops.state import GRAPH_NODE as GRAPH_NODE
from oscine.ops.state import HEADER as HEADER
from oscine.ops.state import NEG_INF as NEG_INF
from oscine.ops.state import SAMPLING_PARAMS as SAMPLING_PARAMS
from oscine.ops.state import STOP_END as STOP_END
from oscine.ops.state import STOP_LENGTH as STOP_LENGTH
from oscine.ops.state import STOP_NONFINITE as STOP_NONFINITE
from oscine.ops.state import STOP_REPEAT as STOP_REPEAT
from oscine.ops.state import SUPPRESS as SUPPRESS
from oscine.ops.state import SUPPRESS_FIRST as SUPPRESS_FIRST
from oscine.ops.state import TALKER_STATE as TALKER_STATE
from oscine.ops.state import TEXT_DECODER_STATE as TEXT_DECODER_STATE
from oscine.ops.state import TRANSDUCER_STATE as TRANSDUCER_STATE
from oscine.ops.state import TRANSDUCER_STEP as TRANSDUCER_STEP
from oscine.ops.state import ContextGraphTensors as ContextGraphTensors
from oscine.ops.state import FinishedBeams as FinishedBeams
from oscine.ops.state import LstmState as LstmState
from oscine.ops.state import SequenceState as SequenceState
from oscine.ops.state import TalkerState as TalkerState
from oscine.ops.state import TextDecoderState as TextDecoderState
from oscine.ops.state import TransducerState as TransducerState
from oscine.ops.types import Activation as Activation
from oscine.ops.types import ConvParams as ConvParams
from oscine.ops.types import FeatureNorm as FeatureNorm
from oscine.ops.types import KVCache as KVCache
from oscine.ops.types import LayerNorm as LayerNorm
from oscine.ops.types import Linear as Linear
from oscine.ops.types import MelBank as MelBank
from oscine.ops.types import Padding as Padding
from oscine.ops.types import QKNorm as QKNorm
from oscine.ops.types import RmsNorm as RmsNorm
from oscine.ops.types import RopeTable as RopeTable
from oscine.ops.types import SeqLengths as SeqLengths
from oscine.ops.types import Snake as Snake
from oscine.ops.types import Tensor as Tensor
