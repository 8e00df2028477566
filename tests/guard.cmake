# --guard: bits that flip in memory.
if(NOT TERRACE_SANITIZE)
  terrace_program_test(guard TIMEOUT 600)
endif()
