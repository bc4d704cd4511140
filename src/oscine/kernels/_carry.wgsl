// The memory of a causal stage moves on: it then holds the last LEFT rows of memory‖x.
// Called by a whole workgroup, CARRIED invocations a column, for columns that are its own. In
// ascending order: what is read lies never before what was written.
// Paste where x and memory [rows, WIDTH4] are bound.
const LEFT: u32 = 1u;
const WIDTH4: u32 = 1u;

fn carry(column: u32, lane: u32, rows: u32) {
  for (var begin = 0u; begin < LEFT; begin += CARRIED) {
    let to = begin + lane;
    let inside = to < LEFT && column < WIDTH4;
    var value = vec4<f32>();
    if (inside) {
      let source = rows + to;
      if (source < LEFT) {
        value = memory[source * WIDTH4 + column];
      } else {
        value = x[(source - LEFT) * WIDTH4 + column];
      }
    }
    storageBarrier();
    if (inside) {
      memory[to * WIDTH4 + column] = value;
    }
    storageBarrier();
  }
}
