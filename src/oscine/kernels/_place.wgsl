// Where a row stands, and where its line's keys lie. Paste after utterances, keys and WINDOW.
struct Place {
  counts: bool,
  place: u32,  // the row's position
  room: u32,   // positions that a line's cache holds
  cache: u32,  // its first vec4
}

// Of row `row` of `rows`, which are as many of each line.
fn place_of(row: u32, rows: u32) -> Place {
  let lines = arrayLength(&utterances) / UTTERANCE_WORDS;
  let length = rows / lines;
  let base = row / length * UTTERANCE_WORDS;
  let l = row % length;
  let size = arrayLength(&keys) / lines;
  let room = size / (KEY_HEADS * W4);
  var place = utterances[base + POSITION] + l;
  var counts = l < utterances[base + LENGTH];
  if (INNER) {
    place = utterances[base + GROUP] + 1u + l - length;
    counts = true;
  }
  counts = counts && utterances[base + DONE] == 0u && (WINDOW > 0u || place < room);
  return Place(counts, place, room, row / length * size);
}

// The place in the cache, a ring where there is a window, of a position.
fn slot_of(place: u32, room: u32) -> u32 {
  if (WINDOW > 0u) {
    return place % room;
  }
  return place;
}
