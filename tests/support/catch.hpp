// Catch2, 2 or 3.
#pragma once
#if TERRACE_CATCH_MAJOR >= 3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
