// GELU as x/2 (1 + erf(x/√2)); erf(x) ≈ x P(x²)/Q(x²) on [-4, 4], as in ops/reference/activations.py.
// SiLU as x / (1 + e^-x), the exponent cut off where it would overflow.
// The hyperbolic tangent as (e^2x - 1) / (e^2x + 1): WGSL promises five digits of its own.
const ACTIVATION: u32 = 0u;  // 1: GELU, 2: SiLU, 3: ReLU, 4: ELU, 5: tanh, 6: sigmoid

fn erf(value: f32) -> f32 {
  let x = clamp(value, -4.0, 4.0);
  let s = x * x;
  var p = -2.72614225801306e-10;
  p = p * s + 2.77068142495902e-08;
  p = p * s - 2.10102402082508e-06;
  p = p * s - 5.69250639462346e-05;
  p = p * s - 7.34990630326855e-04;
  p = p * s - 2.95459980854025e-03;
  p = p * s - 1.60960333262415e-02;
  var q = -1.45660718464996e-05;
  q = q * s - 2.13374055278905e-04;
  q = q * s - 1.68282697438203e-03;
  q = q * s - 7.37332916720468e-03;
  q = q * s - 1.42647390514189e-02;
  return x * p / q;
}

fn activate(x: f32) -> f32 {
  if (ACTIVATION == 1u) {
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654752));
  }
  if (ACTIVATION == 2u) {
    return x / (1.0 + exp(min(-x, 80.0)));
  }
  if (ACTIVATION == 3u) {
    return max(x, 0.0);
  }
  if (ACTIVATION == 4u) {
    return select(exp(min(x, 0.0)) - 1.0, x, x > 0.0);
  }
  if (ACTIVATION == 5u) {
    let e = exp(2.0 * clamp(x, -20.0, 20.0));
    return (e - 1.0) / (e + 1.0);
  }
  if (ACTIVATION == 6u) {
    return 1.0 / (1.0 + exp(min(-x, 80.0)));
  }
  return x;
}
