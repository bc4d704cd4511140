// A vec4 of the table of codes; TABLE_KIND is the dtype of its words. Paste after table.
// use _table
const TABLE_KIND: u32 = 0u;

fn of_table(at4: u32) -> vec4<f32> {
  let at = first_word(at4, TABLE_KIND);
  var words = vec4<u32>(table[at], table[at + 1u], 0u, 0u);
  if (TABLE_KIND == 0u) {
    words = vec4<u32>(words.xy, table[at + 2u], table[at + 3u]);
  }
  return four(words, TABLE_KIND);
}
