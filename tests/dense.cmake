terrace_test(base/matrix)
terrace_test(dense/probes)
terrace_test(dense/elimination RANKS 1 2 3 4 5 SANITIZE 3 LANES)
terrace_test(dense/check RANKS 1 3 SANITIZE 1)
terrace_test(dense/system RANKS 1 2 3 5 SANITIZE 3)
terrace_test(dense/refine RANKS 1 2 3 5 SANITIZE 3 LANES)
terrace_test(dense/float_lu RANKS 1 SANITIZE 1 LANES)
terrace_test(dense/cholesky RANKS 1 2 3 5 SANITIZE 3)
terrace_test(dense/kinds RANKS 1 2 3 4 5 SANITIZE 3)
terrace_test(dense/pivots RANKS 1 2 3 4 5 SANITIZE 3)
terrace_test(dense/guard RANKS 1 3 SANITIZE 3)  # jobs/nightly.sh takes 100,000 matrices
foreach(name kinds pivots guard)  # beside LAPACK
  target_link_libraries(dense_${name}_test PRIVATE ${LAPACKE_LIBRARY} BLAS::BLAS)
  target_include_directories(dense_${name}_test SYSTEM PRIVATE ${LAPACKE_INCLUDE})
endforeach()

add_test(NAME dense/pivots.threads COMMAND dense_pivots_test [threads])
set_tests_properties(dense/pivots.threads PROPERTIES TIMEOUT 300 LABELS ranks-1 PROCESSORS 2
                     ENVIRONMENT "${terrace_test_environment};TERRACE_THREADS=3")

# The products on smaller instruction sets, on machines that have the larger ones.
foreach(level plain avx2)
  add_test(NAME dense/refine.${level} COMMAND dense_refine_test [cpu])
  set_tests_properties(dense/refine.${level} PROPERTIES TIMEOUT 300 LABELS ranks-1 PROCESSORS 2
                       ENVIRONMENT "${terrace_test_environment};TERRACE_SIMD=${level}")
  add_test(NAME dense/elimination.${level} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 $<TARGET_FILE:dense_elimination_test>)
  set_tests_properties(dense/elimination.${level} PROPERTIES TIMEOUT 300 LABELS ranks-2 PROCESSORS 2
                       ENVIRONMENT "${terrace_test_environment};TERRACE_SIMD=${level}")
endforeach()
