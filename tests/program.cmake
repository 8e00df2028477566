# Tests that start the program under mpirun; Python's h5py, numpy and SciPy are their oracles.
# After an exit code that is not 0 mpirun sleeps for one or two seconds before it looks whether its ranks
# are gone. All ranks of an agreed error are: they end together. PATIENT: for tests where some do not.
# REAL_LIBRARIES: of CUDA, also where the other tests load the idle ones.
find_program(TERRACE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(TERRACE_PYTHON python3)
function(terrace_program_test name)
  cmake_parse_arguments(arg "PATIENT;REAL_LIBRARIES" "TIMEOUT;PROCESSORS" "" ${ARGN})
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)  # they wait for launchers and files half of the time
  endif()
  set(patience 0)
  if(arg_PATIENT)
    set(patience 1)  # Open MPI's default
  endif()
  set(environment ${terrace_test_environment})
  if(arg_REAL_LIBRARIES)
    set(environment ${terrace_real_environment})
  endif()
  add_test(NAME program/${name} COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/program/${name}.py $<TARGET_FILE:terrace>)
  set_tests_properties(program/${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS program SKIP_RETURN_CODE 77 PROCESSORS ${arg_PROCESSORS}
                       ENVIRONMENT "${environment};OMPI_MCA_odls_base_sigkill_timeout=${patience}")
endfunction()
if(NOT TERRACE_SANITIZE)
  terrace_program_test(bad_input TIMEOUT 900)
  terrace_program_test(bench TIMEOUT 600)
  terrace_program_test(round_trips TIMEOUT 900)
  terrace_program_test(textbook TIMEOUT 900)
  terrace_program_test(dense_kinds TIMEOUT 900)
  terrace_program_test(streamed TIMEOUT 900)
  terrace_program_test(memory TIMEOUT 900)
  terrace_program_test(disk_full TIMEOUT 900)
  terrace_program_test(matrices TIMEOUT 300)
  terrace_program_test(cg_options TIMEOUT 900)
endif()
