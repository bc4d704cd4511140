// y[r, o] = activation(Σ_s sums[s, r, o] + b[o]) + add[r, o]      sums [SPLITS, ROWS, OUTPUTS]
// y and add [ROWS, STRIDE] from column OFFSET on, add of one item of ITEM_ROWS rows. Launch (ceil(OUTPUTS / 128), ROWS).
// use _gemm_epilogue
const ROWS: u32 = 1u;
const OUTPUTS: u32 = 1u;
const SPLITS: u32 = 2u;

@group(0) @binding(0) var<storage, read> sums: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) me: vec3<u32>) {
  if (me.x >= OUTPUTS) {
    return;
  }
  var value = 0.0;
  for (var part = 0u; part < SPLITS; part++) {
    value += sums[(part * ROWS + me.y) * OUTPUTS + me.x];
  }
  y[me.y * STRIDE + OFFSET + me.x] = epilogue(me.y, me.x, value);
}
