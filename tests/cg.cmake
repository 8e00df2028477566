terrace_test(cg/operators RANKS 1 2 3 5 SANITIZE 3)
terrace_test(cg/conjugate_gradients RANKS 1 2 3 4 5 SANITIZE 3)
