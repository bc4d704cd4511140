// Eight weights in a row of a matrix w of 8 bits, which become float16. Paste with binding w: array<Word>.
// use _matrix_q8
// use _octets_of_blocks
