"""The op vocabulary: what a model's forward may say, and nothing about how it is done.

`ops.reference` defines each op in NumPy, by kind. `ops.webgpu` has the same names; there each call
adds dispatches to the plan being recorded. Ops return new tensors; what they write in place, alike
on both sides, they declare (`ops.facts`).

Shapes: R rows, D model width, V vocabulary, S encoder positions, C cache length; B lines that are
decoded side by side, of which each has a row of state, L rows of each in one pass, W encoded
windows. N slots: what a line keeps from pass to pass is in the place that its state's `slot` names.
Every activation is float32; weights are float32, float16 or bfloat16 (oscine.dtypes) and always
summed in float32; so are the keys and values that cross-attention reads, where a slot for them is
float16.
"""

from __future__ import annotations

from oscine.ops.backend import Backend as Backend
from oscine.ops.backend import Plan as Plan
from oscine.ops.backend import copy_starts as copy_starts
from oscine.ops.backend import upload as upload
from oscine.ops.reference.vocabulary import Ops as Ops
from oscine.ops.state import ARC as ARC
from oscine.ops.state import DECISION as DECISION
from oscine.ops.state import HEADER as HEADER
from oscine.ops.state import NEVER as NEVER
from oscine.ops.state import NODE as NODE
from oscine.ops.state import POOL as POOL
from oscine.ops.state import POOL_FIELDS as POOL_FIELDS
from oscine.ops.state import RULES as RULES
from oscine.ops.state import RULES_FIELDS as RULES_FIELDS
from oscine.ops.state import SAMPLING as SAMPLING
from oscine.ops.state import STATE as STATE
from oscine.ops.state import STATE_FIELDS as STATE_FIELDS
from oscine.ops.state import STOP_END as STOP_END
from oscine.ops.state import STOP_LENGTH as STOP_LENGTH
from oscine.ops.state import STOP_NONFINITE as STOP_NONFINITE
from oscine.ops.state import STOP_REPEAT as STOP_REPEAT
from oscine.ops.state import SUPPRESS as SUPPRESS
from oscine.ops.state import SUPPRESS_FIRST as SUPPRESS_FIRST
from oscine.ops.state import TRACK as TRACK
from oscine.ops.state import UTTERANCE as UTTERANCE
from oscine.ops.state import Boost as Boost
from oscine.ops.state import Memory as Memory
from oscine.ops.state import Pool as Pool
from oscine.ops.state import SequenceState as SequenceState
from oscine.ops.state import State as State
from oscine.ops.state import Track as Track
from oscine.ops.state import Utterances as Utterances
from oscine.ops.types import Activation as Activation
from oscine.ops.types import Cache as Cache
from oscine.ops.types import HeadNorms as HeadNorms
from oscine.ops.types import Lengths as Lengths
from oscine.ops.types import Linear as Linear
from oscine.ops.types import Norm as Norm
from oscine.ops.types import Padding as Padding
from oscine.ops.types import RmsNorm as RmsNorm
from oscine.ops.types import Rotary as Rotary
from oscine.ops.types import Snake as Snake
from oscine.ops.types import Taps as Taps
from oscine.ops.types import Tensor as Tensor
