// Aggregation multigrid on one device's rows, on the host: which entries are strong, aggregates of
// rows, the prolongation, the products of sparse matrices that make a coarse matrix, and the inverse
// of the coarsest. Everything is in threads, and gives the same bits for any number of them.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/base/large_vector.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {

/// CSR rows on the host, local column numbers in any order, none twice in a row. Of a matrix whose
/// columns are rows of all ranks: own ones first, then those of others that are needed.
struct HostRows {
  std::vector<Index> start{0};
  LargeVector<std::int32_t> column;
  LargeVector<double> value;
  Index columns = 0;
  [[nodiscard]] Index rows() const { return Index(start.size()) - 1; }
  [[nodiscard]] Index nonzeros() const { return start.back(); }
  [[nodiscard]] CsrRows<Cpu> view() const {
    return {
        {start.data(), rows() + 1}, {column.data(), nonzeros()}, {value.data(), nonzeros()}, {}};
  }
};

/// A[i, i] of each row, zero where it is not stored.
std::vector<double> diagonal_of(const HostRows& a);
/// The largest sum over a row of |a_ij| / a_ii: no eigenvalue of D^-1 A is larger (Gershgorin).
/// Diagonals are positive.
double gershgorin_bound(const HostRows& a, const std::vector<double>& diagonal);

/// One flag an entry: a_ij^2 >= threshold^2 a_ii a_jj, i and j different. `diagonal`: of all columns.
LargeVector<char> strong_entries(const CsrRows<Cpu>& a, View<const double, Cpu> diagonal,
                                 double threshold);

/// of[i]: the aggregate of row i (of column i, where others follow), ascending with the rows that
/// began them; -1: row i has no strong entry, and is left to the smoother.
struct Aggregates {
  std::vector<std::int32_t> of;
  Index count = 0;
};
/// Of own rows, in their order: a row whose strong neighbours are all free takes them; then what is
/// left joins a neighbour's aggregate, or neighbours that are left too (Vanek, Mandel, Brezina 1996,
/// algorithm 5.1).
Aggregates aggregate(const CsrRows<Cpu>& a, const LargeVector<char>& strong);

/// T, rows x aggregates: T[i, j] = 1 where j is row i's aggregate.
HostRows tentative_prolongation(const Aggregates& aggregates);
/// P = (I - 4/3 L^-1 F) T, rows x aggregates. Here T has a row for each column of A, own or not. F is A with its weak entries added to the diagonal: it takes constants to where A does.
/// L holds the sums of |F|'s rows, so the largest eigenvalue of L^-1 F is at most one.
HostRows smoothed_prolongation(const HostRows& a, const LargeVector<char>& strong,
                               const std::vector<double>& diagonal, const Aggregates& aggregates);

/// Columns of each row ascend.
HostRows transposed(const HostRows& a);
/// A B. Each sum in the order of A's and B's entries.
HostRows product(const HostRows& a, const HostRows& b);

/// Of own rows of a coarse matrix P' A P: a diagonal entry that is zero to rounding, where a column of
/// P is a null vector of A, becomes that of P' D P (its part of own rows). False where one is negative.
bool settle_null_vectors(HostRows& coarse, const HostRows& prolongation,
                         const std::vector<double>& diagonal);

/// A := A^-1 for a symmetric positive definite n x n matrix, row-major, by sweeps (Beaton 1964).
/// Rows that depend on earlier ones to rounding become zero: of a semidefinite A the result is the
/// inverse of a largest definite part. False where a pivot is negative beyond rounding; then A is lost.
/// n^3 multiplications.
bool invert_definite(Index n, std::vector<double>& a);

}  // namespace terrace::cg
