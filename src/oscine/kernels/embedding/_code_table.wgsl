// A vec4 of the table of codes; TABLE_DTYPE is the dtype of its words. Paste after table.
// use _unpack_by_dtype
const TABLE_DTYPE: u32 = 0u;

fn load_code(at4: u32) -> vec4<f32> {
  let at = first_word(at4, TABLE_DTYPE);
  var words = vec4<u32>(table[at], table[at + 1u], 0u, 0u);
  if (TABLE_DTYPE == 0u) {
    words = vec4<u32>(words.xy, table[at + 2u], table[at + 3u]);
  }
  return unpack_four(words, TABLE_DTYPE);
}
