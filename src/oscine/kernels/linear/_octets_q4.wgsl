// Eight weights in a row of a matrix w of 4 bits, which become float16. Paste with binding w: array<Word>.
// use _matrix_q4
// use _octets_of_blocks
