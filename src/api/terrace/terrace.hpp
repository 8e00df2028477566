// All of the library.
#pragma once
#include <terrace/band.hpp>
#include <terrace/cg.hpp>
#include <terrace/context.hpp>
#include <terrace/dense.hpp>
#include <terrace/gf2.hpp>
