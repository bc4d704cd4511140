// The decision of each row: over the frames of its block, past blanks, up to a label.
// state [B]; parts [B·AHEAD, CHUNKS] as transducer_step_partial.wgsl leaves them; logits [B·AHEAD, STRIDE], of
// which the last DURATIONS speak of durations; params: V, max_symbols, the durations; decisions
// [slots, CAPACITY], those of a row at state.slot. An invocation puts the parts of one frame together,
// then the first walks. Launch (B); AHEAD <= 128.
// use _transducer_state
// use _transducer_step
// use _neg_inf
const AHEAD: u32 = 1u;
const CHUNKS: u32 = 1u;
const STRIDE: u32 = 1u;
const DURATIONS: u32 = 0u;
const CAPACITY: u32 = 1u;
const BOOST: bool = false;

@group(0) @binding(0) var<storage, read> parts: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> params: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> decisions: array<u32>;
@group(0) @binding(5) var<storage, read> nodes: array<u32>;
@group(0) @binding(6) var<storage, read> arcs: array<u32>;

// use _context_graph

const PART_WORDS: u32 = 6u;
const RULES_HEAD: u32 = 2u;
const STOP_END: u32 = 1u;
const STOP_LENGTH: u32 = 3u;
const STOP_NONFINITE: u32 = 4u;

struct Frame {
  top: f32,
  total: f32,
  token: u32,
  label: u32,     // of highest logit + bonus
  duration: u32,
  broken: u32,    // a logit is not finite
}

var<workgroup> block: array<Frame, AHEAD>;

// Parts come in the order of their ids, so that among equals the first is kept.
fn put_together(row: u32) -> Frame {
  var found = Frame(NEG_INF, 0.0, 0u, 0u, 0u, 0u);
  var score = NEG_INF;
  for (var chunk = 0u; chunk < CHUNKS; chunk++) {
    let at = (row * CHUNKS + chunk) * PART_WORDS;
    let top = bitcast<f32>(parts[at]);
    let total = bitcast<f32>(parts[at + 1u]);
    found.broken |= parts[at + 3u];
    if (top > found.top) {
      found.total = found.total * exp(found.top - top) + total;
      found.top = top;
      found.token = parts[at + 2u];
    } else {
      found.total += total * exp(top - found.top);
    }
    let boosted = bitcast<f32>(parts[at + 4u]);
    if (BOOST && boosted > score) {
      score = boosted;
      found.label = parts[at + 5u];
    }
  }
  if (DURATIONS > 0u) {
    var longest = NEG_INF;
    for (var d = 0u; d < DURATIONS; d++) {
      let logit = logits[row * STRIDE + STRIDE - DURATIONS + d];
      if ((bitcast<u32>(logit) & 0x7f800000u) == 0x7f800000u) {
        found.broken = 1u;
      } else if (logit > longest) {
        longest = logit;
        found.duration = params[RULES_HEAD + d];
      }
    }
  }
  return found;
}

// The node after a label: by a binary search of the arcs, else from where it falls back to.
fn next_graph_node(from_node: u32, token: u32) -> u32 {
  var node = from_node;
  loop {
    let at = node * NODE_WORDS;
    var low = nodes[at + NODE_FIRST];
    var high = low + nodes[at + NODE_COUNT];
    let end = high;
    while (low < high) {
      let middle = (low + high) / 2u;
      if (arcs[middle * ARC_WORDS + ARC_TOKEN] < token) {
        low = middle + 1u;
      } else {
        high = middle;
      }
    }
    if (low < end) {
      if (arcs[low * ARC_WORDS + ARC_TOKEN] == token) {
        node = arcs[low * ARC_WORDS + ARC_NODE];
        break;
      }
    }
    let fail = nodes[at + NODE_FAIL];
    if (fail == node) {
      break;
    }
    node = fail;
  }
  return node;
}

fn walk(row: u32) {
  let base = row * WORDS;
  let slot = min(state[base + SLOT], arrayLength(&decisions) / (CAPACITY * STEP_WORDS) - 1u);
  let start = state[base + POSITION];
  var frame = start;
  var count = state[base + COUNT];
  var symbols = state[base + SYMBOLS];
  var done = 0u;
  var fresh = 0u;
  while (done == 0u && fresh == 0u && frame - start < AHEAD) {
    let found = block[frame - start];
    if (found.broken != 0u) {
      done = STOP_NONFINITE;
      break;
    }
    let blank = found.token == params[0];
    let token = select(found.token, found.label, BOOST && !blank);
    let length = select(select(0u, 1u, blank), found.duration, DURATIONS > 0u);
    let forced = length == 0u && (blank || symbols + 1u >= params[1]);
    let moved = select(length, 1u, forced);
    let logit = logits[(row * AHEAD + frame - start) * STRIDE + token];
    let to = (slot * CAPACITY + min(count, CAPACITY - 1u)) * STEP_WORDS;
    decisions[to + STEP_FRAME] = frame;
    decisions[to + STEP_TOKEN] = token;
    decisions[to + STEP_DURATION] = found.duration;
    decisions[to + STEP_ADVANCED] = moved;
    decisions[to + STEP_PROBABILITY] = bitcast<u32>(exp(logit - found.top) / found.total);
    count++;
    frame += moved;
    symbols = select(symbols + 1u, 0u, moved > 0u);
    if (!blank) {
      fresh = 1u;
      state[base + TOKEN] = token;
      state[base + HALF] = 1u - state[base + HALF];
      if (BOOST) {
        state[base + NODE] = next_graph_node(state[base + NODE], token);
      }
    }
    if (frame >= state[base + LENGTH]) {
      done = STOP_END;
    } else if (count >= state[base + LIMIT]) {
      done = STOP_LENGTH;
    }
  }
  state[base + POSITION] = frame;
  state[base + COUNT] = count;
  state[base + SYMBOLS] = symbols;
  state[base + FRESH] = fresh;
  state[base + DONE] = done;
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  if (me < AHEAD) {
    block[me] = put_together(workgroup.x * AHEAD + me);
  }
  workgroupBarrier();
  if (me == 0u && state[workgroup.x * WORDS + DONE] == 0u) {
    walk(workgroup.x);
  }
}
