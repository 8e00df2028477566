if(NOT TERRACE_SANITIZE)
  terrace_program_test(checkpoints TIMEOUT 900)
endif()
