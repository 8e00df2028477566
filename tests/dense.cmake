terrace_test(kernels/matrix)
terrace_test(src/gauss_jordan RANKS 1 2 3 4 5)
