# Tests that start the program under mpirun; Python's h5py, numpy and SciPy are their oracles.
find_program(TERRACE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(TERRACE_PYTHON python3)
function(terrace_program_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "" ${ARGN})
  add_test(NAME program/${name} COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/program/${name}.py $<TARGET_FILE:terrace>)
  set_tests_properties(program/${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS program PROCESSORS 2
                       ENVIRONMENT "${terrace_test_environment}")
endfunction()
if(NOT TERRACE_SANITIZE)
  terrace_program_test(bad_input TIMEOUT 900)
  terrace_program_test(round_trips TIMEOUT 900)
  terrace_program_test(memory TIMEOUT 900)
endif()
