// The best of each stretch of CHUNK of the TOKENS labels and blank, in each frame that counts.
// logits [B·AHEAD, STRIDE]; parts [B·AHEAD, CHUNKS] of 6 words: highest logit, its softmax
// sum, whose it is, whether any is not finite, and, with BOOST, the highest logit + bonus and whose
// that is among labels. The bonus of a label is that of its arc from the deepest node, of the
// state's and those it falls back to, that has one. Launch (CHUNKS, B·AHEAD).
// use _transducer_state
// use _neg_inf
const AHEAD: u32 = 1u;
const TOKENS: u32 = 1u;
const STRIDE: u32 = 1u;
const CHUNK: u32 = 1024u;
const BOOST: bool = false;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> nodes: array<u32>;
@group(0) @binding(3) var<storage, read> arcs: array<u32>;
@group(0) @binding(4) var<storage, read_write> parts: array<u32>;

// use _context_graph
// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _argmax

const PART_WORDS: u32 = 6u;

var<workgroup> bonus: array<f32, CHUNK>;

// The bonuses of ids `start` to `end` at a node.
fn gather(me: u32, start: u32, end: u32, from_node: u32) {
  for (var i = me; i < CHUNK; i += 128u) {
    bonus[i] = NEG_INF;
  }
  var node = from_node;
  var back = 0.0;
  loop {
    workgroupBarrier();
    let at = node * NODE_WORDS;
    let first = nodes[at + NODE_FIRST];
    for (var a = me; a < nodes[at + NODE_COUNT]; a += 128u) {
      let arc = (first + a) * ARC_WORDS;
      let token = arcs[arc + ARC_TOKEN];
      if (token >= start && token < end) {
        if (bonus[token - start] == NEG_INF) {
          bonus[token - start] = back + bitcast<f32>(arcs[arc + ARC_BONUS]);
        }
      }
    }
    let fail = nodes[at + NODE_FAIL];
    if (fail == node) {
      break;
    }
    back += bitcast<f32>(nodes[at + NODE_BACK]);
    node = fail;
  }
  workgroupBarrier();
  for (var i = me; i < CHUNK; i += 128u) {
    if (bonus[i] == NEG_INF) {
      bonus[i] = back;
    }
  }
  workgroupBarrier();
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let base = workgroup.y / AHEAD * WORDS;
  let frame = state[base + POSITION] + workgroup.y % AHEAD;
  if (state[base + DONE] != 0u || frame >= state[base + LENGTH]) {
    return;
  }
  let row = workgroup.y * STRIDE;
  let start = workgroup.x * CHUNK;
  let end = min(start + CHUNK, TOKENS);
  var top = NEG_INF;
  var token = 0u;
  var broken = 0.0;
  for (var id = start + me; id < end; id += 128u) {
    let logit = logits[row + id];
    if ((bitcast<u32>(logit) & 0x7f800000u) == 0x7f800000u) {
      broken = 1.0;
    } else if (logit > top) {
      top = logit;
      token = id;
    }
  }
  let best = block_best(me, top, token);
  broken = workgroup_max(me, broken);
  var total = 0.0;
  for (var id = start + me; id < end; id += 128u) {
    total += exp(min(logits[row + id] - best.score, 0.0));
  }
  total = workgroup_sum(me, total);
  var boosted = Best(NEG_INF, 0u);
  if (BOOST) {
    gather(me, start, end, state[base + NODE]);
    var score = NEG_INF;
    var label = 0u;
    for (var id = start + me; id < min(end, TOKENS - 1u); id += 128u) {
      let sum = logits[row + id] + bonus[id - start];
      if (sum > score) {
        score = sum;
        label = id;
      }
    }
    boosted = block_best(me, score, label);
  }
  if (me == 0u) {
    let to = (workgroup.y * workgroups.x + workgroup.x) * PART_WORDS;
    parts[to] = bitcast<u32>(best.score);
    parts[to + 1u] = bitcast<u32>(total);
    parts[to + 2u] = best.id;
    parts[to + 3u] = u32(broken);
    parts[to + 4u] = bitcast<u32>(boosted.score);
    parts[to + 5u] = boosted.id;
  }
}
