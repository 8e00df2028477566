# Jobs on a SLURM of this machine, binding to cores and GPUs, and what a run tells of itself.
terrace_test(distrib/binding RANKS 1 3)
add_test(NAME distrib/binding.synthetic COMMAND distrib_binding_test)
set_tests_properties(distrib/binding.synthetic PROPERTIES TIMEOUT 60
  ENVIRONMENT "${terrace_test_environment};HWLOC_COMPONENTS=synthetic;HWLOC_SYNTHETIC=numa:2 core:3 pu:2")
if(NOT TERRACE_SANITIZE)
  terrace_program_test(slurm TIMEOUT 900)
  set_tests_properties(program/slurm PROPERTIES LABELS "program;slurm")
  terrace_program_test(observability TIMEOUT 300)
endif()
