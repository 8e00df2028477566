# --guard: bits that flip in memory.
terrace_test(kernels/band_guard RANKS 1 SANITIZE 1)
terrace_test(src/gf2_guard RANKS 1 3 SANITIZE 1)  # jobs/nightly.sh takes 100,000 problems of each
terrace_test(src/band_guard RANKS 1 3 SANITIZE 1)
terrace_test(src/cg_guard RANKS 1 2 SANITIZE 1)
if(NOT TERRACE_SANITIZE)
  terrace_program_test(guard TIMEOUT 1200)
endif()
