# Tests of the GF(2) family.
terrace_test(kernels/bits RANKS 1)
terrace_test(src/echelon RANKS 1 2 3 4 5)
terrace_test(src/gf2 RANKS 1 2 3 5)
