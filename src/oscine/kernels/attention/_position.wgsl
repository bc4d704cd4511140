// The position of a row, and the offset of its slot's keys. Paste after state, qkv, keys and WINDOW.
const SLOTS: u32 = 1u;

struct RowPosition {
  counts: bool,
  position: u32,   // the row's position
  begin: u32,   // the first that it sees
  ring: u32,    // position at the beginning of the cache, this one or one before it
  room: u32,    // positions that a slot of the cache holds
  cache: u32,   // the slot's first vec4
  width4: u32,  // W4, not known beforehand: software compilers take minutes to unroll loops over it
}

// Of row `row` of `rows`, the same number for each sequence.
fn position_of(row: u32, rows: u32) -> RowPosition {
  let length = rows / (arrayLength(&state) / WORDS);
  let base = row / length * WORDS;
  let l = row % length;
  let slot = state[base + SLOT];
  let size = arrayLength(&keys) / SLOTS;
  var at: RowPosition;
  at.width4 = arrayLength(&qkv) / (rows * (HEADS + 2u * KEY_HEADS));
  at.room = size / (KEY_HEADS * W4);
  at.cache = slot * size;
  at.position = state[base + POSITION] + l;
  at.counts = l < state[base + LENGTH];
  if (WITHIN_FRAME) {
    at.position = state[base + GROUP] + 1u + l - length;
    at.counts = true;
  }
  if (WINDOW > 0u) {
    at.begin = max(at.position + 1u, WINDOW) - WINDOW;
    at.ring = at.begin / at.room * at.room;
  } else {
    at.counts = at.counts && at.position < at.room;
  }
  at.counts = at.counts && state[base + DONE] == 0u && slot < SLOTS;
  return at;
}

// Where the cache holds the key of a position from `begin` on; a ring where there is a window.
fn held_at(position: u32, at: RowPosition) -> u32 {
  let held = position - at.ring;
  return select(held, held - at.room, WINDOW > 0u && held >= at.room);
}
