// codes[t, GROUP] = argmin_n Σ (x[t] - table[n])², the first among equals; y[t] = x[t] - table[it]
// x and y [T, 4·WIDTH4], table [ENTRIES, 4·WIDTH4], codes [T, STRIDE].
// Launch a workgroup a row, folded at 65,535; T is that of the binding.
const ENTRIES: u32 = 1u;
const WIDTH4: u32 = 1u;
const GROUP: u32 = 0u;
const STRIDE: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> table: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> codes: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> distances: array<f32, 128>;
var<workgroup> places: array<u32, 128>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.y * workgroups.x + workgroup.x;
  if (row >= arrayLength(&y) / WIDTH4) {
    return;
  }
  var best = 3.0e38;
  var place = 0u;
  for (var n = me; n < ENTRIES; n += 128u) {
    var sum = vec4<f32>();
    for (var i = 0u; i < WIDTH4; i++) {
      let difference = x[row * WIDTH4 + i] - table[n * WIDTH4 + i];
      sum += difference * difference;
    }
    let distance = dot(sum, vec4<f32>(1.0));
    if (distance < best) {
      best = distance;
      place = n;
    }
  }
  distances[me] = best;
  places[me] = place;
  workgroupBarrier();
  for (var i = 0u; i < 128u; i++) {
    let other = distances[i];
    if (other < best || (other == best && places[i] < place)) {
      best = other;
      place = places[i];
    }
  }
  if (me == 0u) {
    codes[row * STRIDE + GROUP] = place;
  }
  for (var i = me; i < WIDTH4; i += 128u) {
    y[row * WIDTH4 + i] = x[row * WIDTH4 + i] - table[place * WIDTH4 + i];
  }
}
