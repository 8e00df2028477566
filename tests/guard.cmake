# --guard: bits that flip in memory.
terrace_test(band/guard_kernels RANKS 1 SANITIZE 1)
if(NOT TERRACE_SANITIZE)
  terrace_program_test(guard TIMEOUT 1200)
endif()
