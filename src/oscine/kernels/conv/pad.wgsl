// y = x padded in time by LEFT rows and more: the input of a convolution
// x [SEQUENCES·T, 4·WIDTH4], y [SEQUENCES·(LEFT + T + ..), 4·WIDTH4]; both lengths are those of the bindings.
// Rows outside a sequence's x are zero, its edge, or its reflection; with MEMORY those on the left are the
// memory's [slots, LEFT, ..], which moves on. A workgroup takes 4 columns of 64 rows of a sequence, or, of
// a memory, of all of them. Launch
// (ceil(WIDTH4 / 4), ceil(rows of a sequence in y that are not the memory's / 64) + 1 with MEMORY, SEQUENCES).
// use _conv_state
const MEMORY: bool = false;
const PADDING: u32 = 0u;  // 1: edge, 2: reflect
const CARRIED: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> memory: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

// Row `row` of a sequence whose `count` rows begin at `first` of x.
fn padded(row: u32, first: u32, count: u32, column: u32) -> vec4<f32> {
  let last = i32(count) - 1;
  var at = i32(row) - i32(LEFT);
  if (PADDING == 0u && (at < 0 || at > last)) {
    return vec4<f32>();
  }
  if (PADDING == 2u) {
    at = abs(at);
    at = min(at, 2 * last - at);
  }
  return x[first + u32(clamp(at, 0, last)) * WIDTH4 + column];
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let count = arrayLength(&x) / (WIDTH4 * workgroups.z);
  let height = arrayLength(&y) / (WIDTH4 * workgroups.z);
  let first = workgroup.z * height * WIDTH4;
  let column = workgroup.x * 4u + me % 4u;
  let lane = me / 4u;
  if (MEMORY && workgroup.y == 0u) {
    let at = sequence_state(workgroup.z, count);
    if (column < WIDTH4) {
      for (var row = lane; row < LEFT; row += 64u) {
        y[first + row * WIDTH4 + column] = joined(row, column, at);
      }
    }
    carry(column, lane, count, at);
    return;
  }
  let before = select(0u, LEFT, MEMORY);
  let row = before + (workgroup.y - select(0u, 1u, MEMORY)) * 64u + lane;
  if (row < height && column < WIDTH4) {
    y[first + row * WIDTH4 + column] = padded(row, workgroup.z * count * WIDTH4, count, column);
  }
}
