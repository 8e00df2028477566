# Ranks that are lost: the heartbeat, injected faults, two hosts and a cut link between them.
if(NOT TERRACE_SANITIZE)
  terrace_program_test(faults PATIENT TIMEOUT 600)
  terrace_program_test(two_hosts PATIENT TIMEOUT 600 PROCESSORS 2)  # it waits for links that are cut
  terrace_program_test(gpu PATIENT TIMEOUT 900)  # skipped where no GPU is seen
  terrace_program_test(two_hosts_gpu PATIENT TIMEOUT 1800)  # skipped where fewer than two are seen
  set_tests_properties(program/faults program/gpu program/two_hosts_gpu PROPERTIES RUN_SERIAL ON)
  set_tests_properties(program/gpu PROPERTIES SKIP_RETURN_CODE 77)
endif()
