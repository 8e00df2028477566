if(TERRACE_SANITIZE MATCHES thread|fuzzer)
  return()
endif()

# The library from outside: programs that know the public headers alone.
add_executable(api_library_test api/library_test.cpp api/library_dense_test.cpp api/library_gf2_test.cpp api/library_band_test.cpp
               api/library_device_test.cpp)
target_sources(api_library_test PRIVATE api/library_alike_test.cpp api/library_staging_test.cpp api/library_values_test.cpp api/library_hdf5_test.cpp
               api/library_factor_test.cpp api/library_cholesky_test.cpp api/library_kept_test.cpp)
set_target_properties(api_library_test PROPERTIES CXX_STANDARD 17 CXX_VISIBILITY_PRESET default)
target_link_libraries(api_library_test PRIVATE terrace_api Catch2::Catch2 BLAS::BLAS)
target_compile_definitions(api_library_test PRIVATE TERRACE_CATCH_MAJOR=${Catch2_VERSION_MAJOR} TERRACE_WITH_CUDA=$<BOOL:${TERRACE_CUDA}>)
if(TERRACE_CUDA)
  target_link_libraries(api_library_test PRIVATE CUDA::cudart)
  foreach(ranks 1 3)
    terrace_gpu_test(api/library.${ranks}.gpu GPUS 1 RANKS ${ranks} TARGET api_library_test TIMEOUT 300 ENVIRONMENT TERRACE_API_BACKEND=cuda)
  endforeach()
  foreach(ranks 1 2)
    terrace_gpu_test(api/library.${ranks}.gpus GPUS 2 RANKS ${ranks} TARGET api_library_test TIMEOUT 300 ENVIRONMENT TERRACE_API_BACKEND=cuda)
  endforeach()
endif()
target_compile_options(api_library_test PRIVATE $<$<CONFIG:Release>:-O1>)
if(TERRACE_SANITIZE)
  target_link_options(api_library_test PRIVATE -fsanitize=${sanitizers})  # the library's; the oracles go without
  add_dependencies(sanitized_tests api_library_test)
endif()
foreach(ranks 1 2 3 4)
  add_test(NAME api/library.${ranks}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:api_library_test>)
  set(labels ranks-${ranks})
  if(ranks MATCHES "[12]")  # three that wait awake take a minute on two cores
    list(APPEND labels sanitize)
  endif()
  set_tests_properties(api/library.${ranks} PROPERTIES TIMEOUT 300 LABELS "${labels}" PROCESSORS ${ranks} COST 300  # they wait awake
                       ENVIRONMENT "${terrace_test_environment};${terrace_launcher_folder}/api_library_${ranks}")
endforeach()
if(TERRACE_SANITIZE)
  return()  # what follows are users' programs, which have no sanitizers
endif()

# The installed tree, moved: what it holds, the examples built against it by find_package and pkg-config, run.
add_test(NAME api/installed COMMAND ${CMAKE_CURRENT_LIST_DIR}/consumer/run.sh ${PROJECT_BINARY_DIR}
         ${CMAKE_CURRENT_LIST_DIR}/consumer ${CMAKE_CURRENT_BINARY_DIR}/consumer)
add_test(NAME api/installed.static COMMAND ${CMAKE_CURRENT_LIST_DIR}/consumer/run.sh ${PROJECT_BINARY_DIR}
         ${CMAKE_CURRENT_LIST_DIR}/consumer ${CMAKE_CURRENT_BINARY_DIR}/consumer_static static)
set_target_properties(terrace_static PROPERTIES EXCLUDE_FROM_ALL OFF)
foreach(kind installed installed.static)
  set_tests_properties(api/${kind} PROPERTIES TIMEOUT 600 ENVIRONMENT "${terrace_test_environment};${terrace_launcher_folder}/${kind}")
endforeach()

# The Python package: 500 cases on one rank, and, slower to start, a part of them on 3.
foreach(ranks 1 3)
  set(count 500)
  set(start "")  # alone without a launcher: it starts the program itself
  if(ranks EQUAL 3)
    set(count 60)
    set(start ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks})
  endif()
  add_test(NAME api/python.${ranks}
           COMMAND ${start} ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/api/python_test.py --count ${count})
  set_tests_properties(api/python.${ranks} PROPERTIES TIMEOUT 300 LABELS "ranks-${ranks}" PROCESSORS ${ranks} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${terrace_test_environment};${terrace_launcher_folder}/api_python_${ranks};PYTHONPATH=${PROJECT_SOURCE_DIR}/src/api/python;PYTHONDONTWRITEBYTECODE=1;TERRACE_LIBRARY=$<TARGET_FILE:terrace_api>;TERRACE_PROGRAM=$<TARGET_FILE:terrace>")
endforeach()

add_test(NAME api/python.arrays COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/api/python_arrays_test.py)
set_tests_properties(api/python.arrays PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77
                     ENVIRONMENT "${terrace_test_environment};PYTHONPATH=${PROJECT_SOURCE_DIR}/src/api/python;PYTHONDONTWRITEBYTECODE=1;TERRACE_LIBRARY=$<TARGET_FILE:terrace_api>")

add_test(NAME api/abi COMMAND ${CMAKE_CURRENT_LIST_DIR}/api/abi.sh $<TARGET_FILE:terrace_api> ${PROJECT_SOURCE_DIR}/src/api/terrace
         ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_tests_properties(api/abi PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)

# The reference: every name, what the heads of files say, no warning. build-test/terrace-reference-*.tar.gz is CI's.
add_test(NAME api/reference COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/api/reference_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
set_tests_properties(api/reference PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)

# Recipes of packages, as far as they can be parsed here.
add_test(NAME api/packaging COMMAND ${TERRACE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/api/packaging_test.py ${PROJECT_SOURCE_DIR})
set_tests_properties(api/packaging PROPERTIES TIMEOUT 60)

# For jobs/measure_library.py: what a call takes beside the verb in it.
add_executable(api_overhead api/overhead.cpp)
set_target_properties(api_overhead PROPERTIES CXX_STANDARD 17 CXX_VISIBILITY_PRESET default)
target_link_libraries(api_overhead PRIVATE terrace_api)
target_compile_definitions(api_overhead PRIVATE TERRACE_WITH_CUDA=$<BOOL:${TERRACE_CUDA}>)
if(TERRACE_CUDA)
  target_link_libraries(api_overhead PRIVATE CUDA::cudart)
endif()
add_test(NAME api/overhead COMMAND ${TERRACE_PYTHON} ${PROJECT_SOURCE_DIR}/jobs/measure_library.py ${PROJECT_BINARY_DIR} --backend cpu --repeat 1 --rounds 1 --scale 0.01)
set_tests_properties(api/overhead PROPERTIES TIMEOUT 300 ENVIRONMENT "${terrace_test_environment};TERRACE_THREADS=1")
