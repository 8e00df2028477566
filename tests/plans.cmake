# --plan and the profile of a machine.
terrace_test(program/predict RANKS 1)
if(NOT TERRACE_SANITIZE)
  terrace_program_test(plans TIMEOUT 600)
  set_tests_properties(program/plans PROPERTIES RUN_SERIAL ON)  # it holds seconds against the plan's
  terrace_program_test(plan_machines TIMEOUT 600)
endif()
