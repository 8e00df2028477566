# Reading at speed, and the fuzzer; jobs/nightly.sh runs both at length.
if(NOT TERRACE_SANITIZE)
  terrace_program_test(load TIMEOUT 900 PROCESSORS 3)
  terrace_program_test(fuzz TIMEOUT 900)
endif()
