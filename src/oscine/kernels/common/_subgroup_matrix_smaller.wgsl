// Subgroup matrices of other sizes than 16x16x16: MxK on the left, KxN on the right, MxN sums.
const M: u32 = 8u;
const N: u32 = 8u;
const K: u32 = 8u;

alias LeftMatrix = subgroup_matrix_left<f16, K, M>;
alias RightMatrix = subgroup_matrix_right<f16, N, K>;
alias SumsMatrix = subgroup_matrix_result<f32, N, M>;
