// total[slot of b] += table[code], or with OVERWRITE = table[code]; y[b] = the row for the code, which
// is table[code], or with PROJECTED projected[code]; with PRECEDING_ROWS y[2b] = preceding_rows[b] and
// y[2b + 1] that row
// table [V, D], total [S, D], D = 4·WIDTH4; projected [V, D'], preceding_rows [B, D'], D' = 4·ROW4.
// Launch (ceil(max(WIDTH4, ROW4) / 64), B).
// use _talker_state
const WIDTH4: u32 = 1u;
const ROW4: u32 = 1u;
const PROJECTED_DTYPE: u32 = 0u;
const PROJECTED: bool = false;
const OVERWRITE: bool = false;
const PRECEDING_ROWS: bool = false;

@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(0) @binding(1) var<storage, read> projected: array<u32>;
@group(0) @binding(2) var<storage, read> preceding_rows: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> total: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

// use _code_table

fn of_projected(at4: u32) -> vec4<f32> {
  let at = first_word(at4, PROJECTED_DTYPE);
  var words = vec4<u32>(projected[at], projected[at + 1u], 0u, 0u);
  if (PROJECTED_DTYPE == 0u) {
    words = vec4<u32>(words.xy, projected[at + 2u], projected[at + 3u]);
  }
  return unpack_four(words, PROJECTED_DTYPE);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let base = at.y * WORDS;
  let slot = state[base + SLOT];
  if (state[base + DONE] != 0u || slot >= arrayLength(&total) / WIDTH4) {
    return;
  }
  let code = state[base + TOKEN];
  var row = vec4<f32>();
  if (at.x < WIDTH4) {
    row = load_code(code * WIDTH4 + at.x);
    let to = slot * WIDTH4 + at.x;
    if (OVERWRITE) {
      total[to] = row;
    } else {
      total[to] += row;
    }
  }
  if (at.x < ROW4) {
    if (PROJECTED) {
      row = of_projected(code * ROW4 + at.x);
    }
    if (PRECEDING_ROWS) {
      y[2u * at.y * ROW4 + at.x] = preceding_rows[at.y * ROW4 + at.x];
      y[(2u * at.y + 1u) * ROW4 + at.x] = row;
    } else {
      y[at.y * ROW4 + at.x] = row;
    }
  }
}
