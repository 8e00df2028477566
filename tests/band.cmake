terrace_test(kernels/band RANKS 1 SANITIZE 1)
terrace_test(src/band_cholesky RANKS 1 2 3 4 5 SANITIZE 3)
terrace_test(src/band_hybrid RANKS 1 2 3 SANITIZE 3)
