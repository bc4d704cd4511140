// The position of a row, and the place of its slot's keys. Paste after utterances, qkv, keys and WINDOW.
const SLOTS: u32 = 1u;

struct Place {
  counts: bool,
  place: u32,   // the row's position
  begin: u32,   // the first that it sees
  ring: u32,    // position at the beginning of the cache, this one or one before it
  room: u32,    // positions that a slot of the cache holds
  cache: u32,   // the slot's first four values
  width4: u32,  // W4, not known beforehand: software compilers take minutes to unroll loops over it
}

// Of row `row` of `rows`, which are as many of each utterance.
fn place_of(row: u32, rows: u32) -> Place {
  let length = rows / (arrayLength(&utterances) / WORDS);
  let base = row / length * WORDS;
  let l = row % length;
  let slot = utterances[base + SLOT];
  let size = arrayLength(&keys) / SLOTS;
  var at: Place;
  at.width4 = arrayLength(&qkv) / (rows * (HEADS + 2u * KEY_HEADS));
  at.room = size / (KEY_HEADS * W4);
  at.cache = slot * size;
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
  at.counts = at.counts && utterances[base + DONE] == 0u && slot < SLOTS;
  return at;
}

// Where the cache holds the key of a position from `begin` on; a ring where there is a window.
fn held_at(place: u32, at: Place) -> u32 {
  let held = place - at.ring;
  return select(held, held - at.room, WINDOW > 0u && held >= at.room);
}
