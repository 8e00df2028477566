terrace_test(kernels/matrix)
terrace_test(src/gauss_jordan RANKS 1 2 3 4 5 SANITIZE 3)
terrace_test(src/dense_check RANKS 1 3 SANITIZE 1)
