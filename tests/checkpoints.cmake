if(NOT TERRACE_SANITIZE)
  terrace_program_test(checkpoints TIMEOUT 900)
  terrace_program_test(lifecycle PATIENT TIMEOUT 300)
endif()
