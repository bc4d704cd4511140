// The memory of a causal stage, [slots, LEFT, WIDTH4], and how it moves on: the place of a voice then
// holds the last LEFT rows of memory‖x. Paste where x [VOICES·rows, WIDTH4] and memory are bound.
// use _talker_state
const LEFT: u32 = 1u;
const WIDTH4: u32 = 1u;

struct Voice {
  x: u32,       // offset of its first row in x, in vec4s
  memory: u32,  // offset of its slot in the memory, in vec4s
  begun: bool,  // else there is silence before x, whatever its place holds; so without a place
  runs: bool,   // else its place stays as it is
}

// Of a sequence with that many rows.
fn voice_of(voice: u32, rows: u32) -> Voice {
  let base = voice * WORDS;
  let size = LEFT * WIDTH4;
  let slot = state[base + SLOT];
  let there = slot < arrayLength(&memory) / size;
  let begun = there && state[base + POSITION] > 0u;
  return Voice(voice * rows * WIDTH4, slot * size, begun, there && state[base + DONE] == 0u);
}

// Row `row` of memory‖x.
fn joined(row: u32, column: u32, at: Voice) -> vec4<f32> {
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
fn carry(column: u32, lane: u32, rows: u32, at: Voice) {
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
