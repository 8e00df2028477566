terrace_test(kernels/products RANKS 1 SANITIZE 1)
terrace_test(distrib/halo RANKS 1 2 3 5 SANITIZE 3)
terrace_test(src/operators RANKS 1 2 3 5 SANITIZE 3)
terrace_test(src/conjugate_gradients RANKS 1 2 3 4 5 SANITIZE 3)
