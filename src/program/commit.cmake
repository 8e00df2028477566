# Writes the header that names the commit, where it has changed: cmake -DSOURCE=DIR -DTO=FILE -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --match=
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "unknown")
endif()
set(text "// Made by src/program/commit.cmake.\n#pragma once\n#define TERRACE_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${TO})
  file(READ ${TO} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${TO} "${text}")
endif()
