terrace_test(base/stream RANKS 1 SANITIZE 1 LANES)
set_property(TEST base/stream.1 APPEND PROPERTY ENVIRONMENT TERRACE_THREADS=3)
add_library(fake_nvml MODULE base/fake_nvml.cpp)
set_target_properties(fake_nvml PROPERTIES CXX_VISIBILITY_PRESET default)
terrace_test(base/parallel RANKS 1 SANITIZE 1 LANES)
terrace_test(base/energy RANKS 1)
terrace_test(base/timeline RANKS 1)
terrace_test(base/kept_memory RANKS 1)
terrace_test(base/environment SANITIZE 1)
terrace_test(program/energy RANKS 1 3)
foreach(test base_energy_test program_energy_test)
  add_dependencies(${test} fake_nvml)
  target_compile_definitions(${test} PRIVATE TERRACE_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
endforeach()
terrace_test(distrib/layout RANKS 1)
terrace_test(distrib/communicator RANKS 1 2 3 5 SANITIZE 3 LANES)
# Messages in many pieces: the limits of 1 GiB a call and 64 MiB a stage, made small.
foreach(ranks 1 3)
  add_test(NAME distrib/communicator.pieces-${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:distrib_communicator_test> "~*cuda*")
  set_tests_properties(distrib/communicator.pieces-${ranks} PROPERTIES TIMEOUT 300 LABELS ranks-${ranks} PROCESSORS ${ranks}
                       ENVIRONMENT "${terrace_test_environment};TERRACE_TEST_PIECE_BYTES=1000")
endforeach()
if(TERRACE_CUDA)
  terrace_gpu_test(distrib/communicator.pieces-3.gpu GPUS 1 RANKS 3 TARGET distrib_communicator_test TIMEOUT 300
                   ENVIRONMENT TERRACE_TEST_PIECE_BYTES=1000)
  # NCCL itself: by one rank, which takes it for the test alone, and by two with a GPU each.
  terrace_gpu_test(distrib/communicator.nccl-1 GPUS 1 RANKS 1 TARGET distrib_communicator_test TIMEOUT 300
                   ENVIRONMENT TERRACE_TEST_NCCL_ALONE=1 TERRACE_TEST_TRANSPORT=NCCL)
  terrace_gpu_test(distrib/communicator.nccl-2 GPUS 2 RANKS 2 TARGET distrib_communicator_test TIMEOUT 300
                   ENVIRONMENT TERRACE_PEER_MEMORY=0 TERRACE_TEST_TRANSPORT=NCCL)
  # Peers' memory: of two GPUs, and of three ranks that take turns on one.
  terrace_gpu_test(distrib/communicator.peers-2 GPUS 2 RANKS 2 TARGET distrib_communicator_test TIMEOUT 300
                   ENVIRONMENT TERRACE_TEST_TRANSPORT=peer)
  terrace_gpu_test(distrib/communicator.peers-3 GPUS 1 RANKS 3 TARGET distrib_communicator_test TIMEOUT 300
                   ENVIRONMENT TERRACE_TEST_PEERS_SHARE=1 TERRACE_TEST_TRANSPORT=peer)
endif()
terrace_test(base/backend RANKS 1 2)
terrace_test(base/eliminate RANKS 1 SANITIZE 1 LANES)
terrace_test(base/stages RANKS 1 3 SANITIZE 3 LANES)
find_program(TERRACE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(TERRACE_PYTHON python3)
add_test(NAME messages COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/messages.py ${PROJECT_SOURCE_DIR})
add_test(NAME pages COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/pages.py ${PROJECT_SOURCE_DIR})
add_test(NAME layers COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -P ${CMAKE_CURRENT_LIST_DIR}/layers.cmake)
add_test(NAME format COMMAND ${CMAKE_CURRENT_LIST_DIR}/format.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(format PROPERTIES SKIP_RETURN_CODE 77)
if(NOT TERRACE_SANITIZE)
  add_test(NAME headers COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/headers.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(headers PROPERTIES TIMEOUT 900 PROCESSORS 2 SKIP_RETURN_CODE 77)  # of what changed
  add_test(NAME tidy COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/tidy.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})  # of what changed
  set_tests_properties(tidy PROPERTIES TIMEOUT 900 PROCESSORS 2 SKIP_RETURN_CODE 77)
endif()
