# --guard: bits that flip in memory.
terrace_test(gf2/guard RANKS 1 3 SANITIZE 1)  # jobs/nightly.sh takes 100,000 problems of each
terrace_test(band/guard RANKS 1 3 SANITIZE 1)
terrace_test(cg/guard RANKS 1 3 SANITIZE 1)
if(NOT TERRACE_SANITIZE)
  terrace_program_test(guard TIMEOUT 1200)
endif()
