// The memory of a causal stage, [slots, LEFT, WIDTH4], and its update: the slot of a sequence then
// holds the last LEFT rows of memory‖x. Paste where x [SEQUENCES·rows, WIDTH4] and memory are bound.
// use _talker_state
const LEFT: u32 = 1u;
const WIDTH4: u32 = 1u;

struct SequenceState {
  x: u32,       // offset of its first row in x, in vec4s
  memory: u32,  // offset of its slot in the memory, in vec4s
  begun: bool,  // else there is silence before x, whatever its slot holds; so without a slot
  runs: bool,   // else its slot stays as it is
}

// Of a sequence with that many rows.
fn sequence_state(sequence: u32, rows: u32) -> SequenceState {
  let base = sequence * WORDS;
  let size = LEFT * WIDTH4;
  let slot = state[base + SLOT];
  let there = slot < arrayLength(&memory) / size;
  let begun = there && state[base + POSITION] > 0u;
  return SequenceState(sequence * rows * WIDTH4, slot * size, begun, there && state[base + DONE] == 0u);
}

// Row `row` of memory‖x.
fn joined(row: u32, column: u32, at: SequenceState) -> vec4<f32> {
  if (row >= LEFT) {
    return x[at.x + (row - LEFT) * WIDTH4 + column];
  }
  if (at.begun) {
    return memory[at.memory + row * WIDTH4 + column];
  }
  return vec4<f32>();
}

// Called by a whole workgroup, CARRIED invocations a column, for columns that are its own. In
// ascending order: no read is before an earlier write.
fn carry(column: u32, lane: u32, rows: u32, at: SequenceState) {
  for (var begin = 0u; begin < LEFT; begin += CARRIED) {
    let to = begin + lane;
    let inside = to < LEFT && column < WIDTH4 && at.runs;
    var value = vec4<f32>();
    if (inside) {
      value = joined(rows + to, column, at);
    }
    storageBarrier();
    if (inside) {
      memory[at.memory + to * WIDTH4 + column] = value;
    }
    storageBarrier();
  }
}
