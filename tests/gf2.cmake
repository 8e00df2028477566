# Tests of the GF(2) family.
foreach(level plain avx2)  # what this machine would not choose
  foreach(name bits bits_add)
    add_test(NAME gf2/${name}.${level} COMMAND gf2_${name}_test "[cpu]")
    set_tests_properties(gf2/${name}.${level} PROPERTIES TIMEOUT 300
                         ENVIRONMENT "${terrace_test_environment};TERRACE_SIMD=${level}")
  endforeach()
endforeach()
terrace_test(gf2/echelon RANKS 1 2 3 4 5 SANITIZE 3 LANES)
terrace_test(gf2/plan RANKS 1 3)
terrace_test(gf2/gf2 RANKS 1 2 3 5 SANITIZE 3 LANES)
terrace_test(gf2/system RANKS 1 2 3 5 SANITIZE 3)
terrace_test(gf2/full_panel RANKS 1 SANITIZE 1 TIMEOUT 600)
set_tests_properties(gf2/full_panel.1 PROPERTIES COST 600)  # it is long: before the others
# Bodies of kernels on an emulated cluster: their instructions come from there.
target_include_directories(gf2_full_panel_test BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR}/emulated)
target_compile_options(gf2_full_panel_test PRIVATE -Wno-unknown-pragmas -U_FORTIFY_SOURCE)  # its longjmp goes from stack to stack, which Ubuntu's default refuses
set_target_properties(gf2_full_panel_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # which are compiled with it

# M4RI is GPL: a program of its own, built where the package is, never linked into ours.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(M4RI QUIET m4ri)
endif()
if(M4RI_FOUND)
  # The static library where there is one, so that the program runs where the package is not.
  find_library(M4RI_STATIC libm4ri.a HINTS ${M4RI_LIBRARY_DIRS} ${M4RI_LIBDIR})
  set(m4ri_link ${M4RI_LIBRARIES})
  if(M4RI_STATIC)
    set(m4ri_link ${M4RI_STATIC} ${M4RI_STATIC_LIBRARIES})
    list(REMOVE_ITEM m4ri_link m4ri)
  endif()
  add_executable(m4ri_bench rivals/m4ri_bench.cpp ${PROJECT_SOURCE_DIR}/kernels/base/energy.cpp)
  target_include_directories(m4ri_bench PRIVATE ${PROJECT_SOURCE_DIR} ${M4RI_INCLUDE_DIRS})
  target_link_directories(m4ri_bench PRIVATE ${M4RI_LIBRARY_DIRS})
  target_link_libraries(m4ri_bench PRIVATE ${m4ri_link} ${CMAKE_DL_LIBS})
  add_test(NAME rivals/m4ri_same_bits
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/rivals/same_bits.sh ${MPIEXEC_EXECUTABLE}
                   $<TARGET_FILE:terrace> $<TARGET_FILE:m4ri_bench>)
  set_tests_properties(rivals/m4ri_same_bits PROPERTIES TIMEOUT 120 ENVIRONMENT "${terrace_test_environment}")

  # Every matrix of rivals/families.hpp; jobs/nightly.sh takes all ranks from 1 to 5 and more plans.
  add_executable(m4ri_identity rivals/m4ri_identity.cpp)
  target_include_directories(m4ri_identity PRIVATE ${PROJECT_SOURCE_DIR} ${M4RI_INCLUDE_DIRS})
  target_link_directories(m4ri_identity PRIVATE ${M4RI_LIBRARY_DIRS})
  target_link_libraries(m4ri_identity PRIVATE ${M4RI_LIBRARIES})
  add_executable(gf2_identity rivals/gf2_identity.cpp)
  target_link_libraries(gf2_identity PRIVATE terrace_program)
  add_test(NAME rivals/m4ri_identity
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/rivals/identity.sh ${MPIEXEC_EXECUTABLE}
                   $<TARGET_FILE:gf2_identity> $<TARGET_FILE:m4ri_identity>)
  set_tests_properties(rivals/m4ri_identity PROPERTIES TIMEOUT 1200 LABELS rivals PROCESSORS 2 COST 600
                       ENVIRONMENT "${terrace_test_environment};RANKS=3;CPU_PLANS=default block=64")
else()
  foreach(name m4ri_same_bits m4ri_identity)  # shown as skipped, not left out in silence
    add_test(NAME rivals/${name} COMMAND sh -c "echo 'skipped: libm4ri-dev is not here'; exit 77")
    set_tests_properties(rivals/${name} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
endif()
