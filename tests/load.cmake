# Reading at speed, the fuzzer and the differential test; jobs/nightly.sh runs all at length.
if(NOT TERRACE_SANITIZE)
  terrace_program_test(load TIMEOUT 900 PROCESSORS 3)
  terrace_program_test(fuzz TIMEOUT 900)
  terrace_program_test(differential TIMEOUT 900 PROCESSORS 2)
endif()
add_test(NAME mutations_apply COMMAND ${TERRACE_PYTHON} ${PROJECT_SOURCE_DIR}/jobs/mutations.py --check)
