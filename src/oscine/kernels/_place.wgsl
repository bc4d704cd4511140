// Where a row stands, and where its line's keys lie. Paste after utterances, qkv, keys and WINDOW.
struct Place {
  counts: bool,
  place: u32,   // the row's position
  begin: u32,   // the first that it sees
  ring: u32,    // position that lies at the beginning of the cache, this one or one before it
  room: u32,    // positions that a line's cache holds
  cache: u32,   // its first vec4
  width4: u32,  // W4, not known beforehand: software compilers take minutes to unroll loops over it
}

// Of row `row` of `rows`, which are as many of each line.
fn place_of(row: u32, rows: u32) -> Place {
  let lines = arrayLength(&utterances) / UTTERANCE_WORDS;
  let length = rows / lines;
  let base = row / length * UTTERANCE_WORDS;
  let l = row % length;
  let size = arrayLength(&keys) / lines;
  var at: Place;
  at.width4 = arrayLength(&qkv) / (rows * (HEADS + 2u * KEY_HEADS));
  at.room = size / (KEY_HEADS * W4);
  at.cache = row / length * size;
  at.place = utterances[base + POSITION] + l;
  at.counts = l < utterances[base + LENGTH];
  if (INNER) {
    at.place = utterances[base + GROUP] + 1u + l - length;
    at.counts = true;
  }
  if (WINDOW > 0u) {
    at.begin = max(at.place + 1u, WINDOW) - WINDOW;
    at.ring = at.begin / at.room * at.room;
  } else {
    at.counts = at.counts && at.place < at.room;
  }
  at.counts = at.counts && utterances[base + DONE] == 0u;
  return at;
}

// Where the key of a position from `begin` on lies in the cache, a ring where there is a window.
fn slot_of(place: u32, at: Place) -> u32 {
  let slot = place - at.ring;
  return select(slot, slot - at.room, WINDOW > 0u && slot >= at.room);
}
