terrace_test(kernels/matrix)
terrace_test(src/gauss_jordan RANKS 1 2 3 4 5 SANITIZE 3 LANES)
terrace_test(src/dense_check RANKS 1 3 SANITIZE 1)
terrace_test(kernels/textbook RANKS 1 SANITIZE 1)
terrace_test(src/textbook RANKS 1 SANITIZE 1)
foreach(name kinds pivots guard)  # beside LAPACK
  if(name STREQUAL guard)  # jobs/nightly.sh takes 100,000 matrices
    terrace_test(src/dense_guard RANKS 1 3 SANITIZE 3)
  else()
    terrace_test(src/dense_${name} RANKS 1 2 3 4 5 SANITIZE 3)
  endif()
  target_link_libraries(src_dense_${name}_test PRIVATE ${LAPACKE_LIBRARY} BLAS::BLAS)
  target_include_directories(src_dense_${name}_test SYSTEM PRIVATE ${LAPACKE_INCLUDE})
endforeach()

# The products on smaller instruction sets, on machines that have the larger ones.
foreach(level plain avx2)
  add_test(NAME src/gauss_jordan.${level} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 $<TARGET_FILE:src_gauss_jordan_test>)
  set_tests_properties(src/gauss_jordan.${level} PROPERTIES TIMEOUT 300 LABELS ranks-2 PROCESSORS 2
                       ENVIRONMENT "${terrace_test_environment};TERRACE_SIMD=${level}")
endforeach()
terrace_test(kernels/emulated RANKS 1 SANITIZE 1)
