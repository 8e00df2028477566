#include "src/api/cg_request.hpp"

#include <fmt/core.h>

#include "distrib/agree.hpp"

namespace terrace::api::cg {

namespace {

void require_known(const std::string& value, std::initializer_list<const char*> names,
                   const char* option) {
  std::string list;
  for (const char* const name : names) {
    if (value == name) return;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  fail_together(Exit::usage,
                fmt::format("unknown {} '{}'; cg::Options; use {}", option, value, list));
}

}  // namespace

std::vector<Alike> alike(const Options& o, Index right, Index left) {
  return {{"Local::columns of b", right},
          {"Local::columns of x", left},
          {"cg::Options::rtol", o.rtol},
          {"cg::Options::atol", o.atol},
          {"cg::Options::max_iterations", o.max_iterations},
          {"cg::Options::preconditioner", o.preconditioner},
          {"cg::Options::block", o.block},
          {"cg::Options::degree", o.degree},
          {"cg::Options::norm", o.norm},
          {"cg::Options::start_given", o.start_given},
          {"cg::Options::mixed", o.mixed},
          {"the columns of cg::Options::near_null_space", o.near_null_space.columns}};
}

terrace::cg::CgRequest request_of(const Options& o, bool dense, bool entries) {
  require_known(o.preconditioner, {"none", "jacobi", "block-jacobi", "ic", "chebyshev", "amg"},
                "preconditioner");
  require_known(o.norm, {"unpreconditioned", "preconditioned", "natural"}, "norm");
  if (dense && o.preconditioner == "ic")
    fail_together(Exit::usage,
                  "the incomplete factor of a dense matrix is its factor; "
                  "cg::Options::preconditioner; use dense::solve, or block-jacobi");
  if (dense && o.preconditioner == "amg")
    fail_together(
        Exit::usage,
        "multigrid needs a sparse matrix; cg::Options::preconditioner; make it by cg::csr or "
        "cg::band, or use chebyshev");
  if (o.mixed && !entries)
    fail_together(
        Exit::usage,
        "mixed precision is for bands and CSR matrices; cg::Options::mixed; leave it out");
  if (o.rtol < 0 || o.atol < 0 || o.block < 1 || o.degree < 1 || o.degree > 64)
    fail_together(Exit::usage,
                  "a tolerance below zero, or a block or degree out of range; "
                  "cg::Options; give rtol, atol from 0, block from 1, degree 1 to 64");
  terrace::cg::CgRequest request;
  request.rtol = o.rtol;
  request.atol = o.atol;
  request.max_iterations = o.max_iterations;
  request.preconditioner = o.preconditioner;
  request.jacobi = o.preconditioner == "jacobi";
  request.block = o.block;
  request.degree = o.degree;
  request.norm = o.norm == "preconditioned" ? terrace::cg::CgNorm::preconditioned
                 : o.norm == "natural"      ? terrace::cg::CgNorm::natural
                                            : terrace::cg::CgNorm::unpreconditioned;
  request.x_given = o.start_given;
  request.mixed = o.mixed;
  return request;
}

}  // namespace terrace::api::cg
