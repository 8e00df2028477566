! Terrace in Fortran: what <terrace/c.h> says, with Fortran's kinds and communicators. Compile this
! file with your program, and link libterrace.
!
!   call check(terrace_open(comm, c_null_ptr, ranks))   ! comm: an integer handle, or comm%MPI_VAL
!
! Arrays are rows of each rank, row-major as in C: element (i, j) of a dense matrix is a(j, i) here.
! A band by columns (layout 1) is LAPACK's ab(ldab, n), and a vector is a vector. Names of files end
! with c_null_char: 'system.h5:/A'//c_null_char.
module terrace
  use, intrinsic :: iso_c_binding
  implicit none
  private
  integer, parameter, public :: terrace_done = 0, terrace_usage = 2, terrace_input = 3, terrace_outcome = 4, &
       terrace_resources = 5, terrace_fault = 6, terrace_internal = 70, terrace_stopped = 75

  !> As `count`, with the size of a block as `first`: rows are dealt in blocks.
  integer(c_int64_t), parameter, public :: terrace_cyclic = -1

  type, bind(c), public :: terrace_options
     integer(c_int) :: backend = 0, threads = 0, unchecked = 0, guard = 0
     type(c_funptr) :: progress = c_null_funptr
     type(c_ptr) :: user = c_null_ptr
     type(c_ptr) :: stream = c_null_ptr
  end type terrace_options

  type, bind(c), public :: terrace_report
     real(c_double) :: residual, reciprocal_condition, log_abs_determinant, log_abs_determinant_error
     integer(c_int64_t) :: determinant_sign, rank, certified
     real(c_double) :: seconds_prepare, seconds_solve, seconds_check, seconds_give
     character(kind=c_char) :: warning(256)
  end type terrace_report

  type, bind(c), public :: terrace_cg_options
     real(c_double) :: rtol = 1d-10, atol = 0d0
     integer(c_int64_t) :: max_iterations = -1
     type(c_ptr) :: preconditioner = c_null_ptr
     integer(c_int64_t) :: block = 0, degree = 0
     integer(c_int) :: start_given = 0
     type(c_funptr) :: observe = c_null_funptr
     type(c_ptr) :: user = c_null_ptr
     type(c_ptr) :: near_null_space = c_null_ptr
     integer(c_int64_t) :: near_columns = 0, near_ld = 0
     integer(c_int) :: mixed = 0
  end type terrace_cg_options

  type, bind(c), public :: terrace_cg_result
     integer(c_int) :: converged
     integer(c_int64_t) :: iterations
     real(c_double) :: residual, scaled_residual
     character(kind=c_char) :: reason(32)
     real(c_double) :: setup_seconds
  end type terrace_cg_result

  type, bind(c), public :: terrace_shape
     integer(c_int) :: kind, is_vector
     integer(c_int64_t) :: rows, columns, half_bandwidth, nonzeros
  end type terrace_shape

  !> `assume` of terrace_dense_solve_assuming and terrace_dense_factor_make_assuming.
  integer(c_int), parameter, public :: terrace_general = 0, terrace_spd = 1, terrace_looks_spd = 2

  public :: terrace_release_memory, terrace_dense_factor_make_assuming, terrace_dense_factor_is_cholesky
  public :: terrace_open, terrace_open_alone, terrace_close, terrace_message, terrace_error_position, &
       terrace_dense_invert, terrace_dense_solve, terrace_dense_solve_assuming, terrace_dense_factor_make, &
       terrace_dense_factor_solve, terrace_dense_factor_free, terrace_hdf5_look, terrace_hdf5_read, &
       terrace_hdf5_read_factor, terrace_hdf5_create, terrace_hdf5_write, terrace_hdf5_write_factor, &
       terrace_hdf5_commit, terrace_hdf5_close, terrace_band_solve, terrace_band_factor_make, &
       terrace_band_factor_solve, terrace_band_factor_free, terrace_gf2_rank, terrace_cg_csr32, &
       terrace_cg_solve, terrace_cg_update_csr, terrace_cg_free

  interface
     integer(c_int) function terrace_open(comm, options, context) bind(c, name='terrace_open_fortran')
       import :: c_int, c_ptr
       integer(c_int), value :: comm
       type(c_ptr), value :: options
       type(c_ptr), intent(out) :: context
     end function terrace_open
     integer(c_int) function terrace_open_alone(options, context) bind(c)
       import :: c_int, c_ptr
       type(c_ptr), value :: options
       type(c_ptr), intent(out) :: context
     end function terrace_open_alone
     subroutine terrace_close(context) bind(c)
       import :: c_ptr
       type(c_ptr), value :: context
     end subroutine terrace_close
     subroutine terrace_release_memory(context) bind(c)
       import :: c_ptr
       type(c_ptr), value :: context
     end subroutine terrace_release_memory
     function terrace_error() bind(c) result(text)
       import :: c_ptr
       type(c_ptr) :: text
     end function terrace_error
     integer(c_int64_t) function terrace_error_position() bind(c)
       import :: c_int64_t
     end function terrace_error_position
     integer(c_int) function terrace_dense_invert(context, n, first, count, a, lda, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int64_t), value :: n, first, count, lda
       real(c_double), intent(inout) :: a(*)
       type(terrace_report), intent(out) :: report
     end function terrace_dense_invert
     integer(c_int) function terrace_dense_solve(context, n, first, count, a, lda, nrhs, b, ldb, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int64_t), value :: n, first, count, lda, nrhs, ldb
       real(c_double), intent(in) :: a(*)
       real(c_double), intent(inout) :: b(*)
       type(terrace_report), intent(out) :: report
     end function terrace_dense_solve
     integer(c_int) function terrace_dense_solve_assuming(context, assume, n, first, count, a, lda, nrhs, b, ldb, &
          report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int), value :: assume
       integer(c_int64_t), value :: n, first, count, lda, nrhs, ldb
       real(c_double), intent(in) :: a(*)
       real(c_double), intent(inout) :: b(*)
       type(terrace_report), intent(out) :: report
     end function terrace_dense_solve_assuming
     integer(c_int) function terrace_dense_factor_make(context, n, first, count, a, lda, factor, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int64_t), value :: n, first, count, lda
       real(c_double), intent(in) :: a(*)
       type(c_ptr), intent(out) :: factor
       type(terrace_report), intent(out) :: report
     end function terrace_dense_factor_make
     integer(c_int) function terrace_dense_factor_make_assuming(context, assume, n, first, count, a, lda, factor, &
          report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int), value :: assume
       integer(c_int64_t), value :: n, first, count, lda
       real(c_double), intent(in) :: a(*)
       type(c_ptr), intent(out) :: factor
       type(terrace_report), intent(out) :: report
     end function terrace_dense_factor_make_assuming
     integer(c_int) function terrace_dense_factor_is_cholesky(factor) bind(c)
       import :: c_int, c_ptr
       type(c_ptr), value :: factor
     end function terrace_dense_factor_is_cholesky
     integer(c_int) function terrace_dense_factor_solve(factor, first, count, nrhs, b, ldb, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: factor
       integer(c_int64_t), value :: first, count, nrhs, ldb
       real(c_double), intent(inout) :: b(*)
       type(terrace_report), intent(out) :: report
     end function terrace_dense_factor_solve
     subroutine terrace_dense_factor_free(factor) bind(c)
       import :: c_ptr
       type(c_ptr), value :: factor
     end subroutine terrace_dense_factor_free
     integer(c_int) function terrace_hdf5_look(context, location, shape) bind(c)
       import :: c_int, c_ptr, c_char, terrace_shape
       type(c_ptr), value :: context
       character(kind=c_char), intent(in) :: location(*)
       type(terrace_shape), intent(out) :: shape
     end function terrace_hdf5_look
     integer(c_int) function terrace_hdf5_read(context, location, first, count, columns, a, lda) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_char, c_double
       type(c_ptr), value :: context
       character(kind=c_char), intent(in) :: location(*)
       integer(c_int64_t), value :: first, count, columns, lda
       real(c_double), intent(inout) :: a(*)
     end function terrace_hdf5_read
     integer(c_int) function terrace_hdf5_read_factor(context, location, n, first, count, a, lda, factor, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_char, c_double, terrace_report
       type(c_ptr), value :: context
       character(kind=c_char), intent(in) :: location(*)
       integer(c_int64_t), value :: n, first, count, lda
       real(c_double), intent(in) :: a(*)
       type(c_ptr), intent(out) :: factor
       type(terrace_report), intent(out) :: report
     end function terrace_hdf5_read_factor
     integer(c_int) function terrace_hdf5_create(context, target, overwrite, output) bind(c)
       import :: c_int, c_ptr, c_char
       type(c_ptr), value :: context
       character(kind=c_char), intent(in) :: target(*)
       integer(c_int), value :: overwrite
       type(c_ptr), intent(out) :: output
     end function terrace_hdf5_create
     integer(c_int) function terrace_hdf5_write(output, name, rows, first, count, columns, a, lda, vector) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_char, c_double
       type(c_ptr), value :: output
       character(kind=c_char), intent(in) :: name(*)
       integer(c_int64_t), value :: rows, first, count, columns, lda
       real(c_double), intent(in) :: a(*)
       integer(c_int), value :: vector
     end function terrace_hdf5_write
     integer(c_int) function terrace_hdf5_write_factor(output, name, factor, matrix) bind(c)
       import :: c_int, c_ptr, c_char
       type(c_ptr), value :: output, factor
       character(kind=c_char), intent(in) :: name(*), matrix(*)
     end function terrace_hdf5_write_factor
     integer(c_int) function terrace_hdf5_commit(output) bind(c)
       import :: c_int, c_ptr
       type(c_ptr), value :: output
     end function terrace_hdf5_commit
     subroutine terrace_hdf5_close(output) bind(c)
       import :: c_ptr
       type(c_ptr), value :: output
     end subroutine terrace_hdf5_close
     integer(c_int) function terrace_band_solve(context, n, m, first, count, ab, ldab, layout, upper, mixed, &
          nrhs, b, ldb, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int64_t), value :: n, m, first, count, ldab, nrhs, ldb
       integer(c_int), value :: layout, upper, mixed
       real(c_double), intent(in) :: ab(*)
       real(c_double), intent(inout) :: b(*)
       type(terrace_report), intent(out) :: report
     end function terrace_band_solve
     integer(c_int) function terrace_band_factor_make(context, n, m, first, count, ab, ldab, layout, upper, &
          factor, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: context
       integer(c_int64_t), value :: n, m, first, count, ldab
       integer(c_int), value :: layout, upper
       real(c_double), intent(in) :: ab(*)
       type(c_ptr), intent(out) :: factor
       type(terrace_report), intent(out) :: report
     end function terrace_band_factor_make
     integer(c_int) function terrace_band_factor_solve(factor, first, count, nrhs, b, ldb, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_report
       type(c_ptr), value :: factor
       integer(c_int64_t), value :: first, count, nrhs, ldb
       real(c_double), intent(inout) :: b(*)
       type(terrace_report), intent(out) :: report
     end function terrace_band_factor_solve
     subroutine terrace_band_factor_free(factor) bind(c)
       import :: c_ptr
       type(c_ptr), value :: factor
     end subroutine terrace_band_factor_free
     integer(c_int) function terrace_gf2_rank(context, rows, columns, first, count, a, lda, pivots, report) bind(c)
       import :: c_int, c_int64_t, c_ptr, terrace_report
       type(c_ptr), value :: context
       integer(c_int64_t), value :: rows, columns, first, count, lda
       integer(c_int64_t), intent(in) :: a(*)
       type(c_ptr), value :: pivots
       type(terrace_report), intent(out) :: report
     end function terrace_gf2_rank
     integer(c_int) function terrace_cg_csr32(context, n, first, count, start, column, value, operator) bind(c)
       import :: c_int, c_int32_t, c_int64_t, c_ptr, c_double
       type(c_ptr), value :: context
       integer(c_int64_t), value :: n, first, count
       integer(c_int32_t), intent(in) :: start(*), column(*)
       real(c_double), intent(in) :: value(*)
       type(c_ptr), intent(out) :: operator
     end function terrace_cg_csr32
     integer(c_int) function terrace_cg_solve(operator, first, count, nrhs, b, ldb, x, ldx, options, results) bind(c)
       import :: c_int, c_int64_t, c_ptr, c_double, terrace_cg_options, terrace_cg_result
       type(c_ptr), value :: operator
       integer(c_int64_t), value :: first, count, nrhs, ldb, ldx
       real(c_double), intent(in) :: b(*)
       real(c_double), intent(inout) :: x(*)
       type(terrace_cg_options), intent(in) :: options
       type(terrace_cg_result), intent(out) :: results(*)
     end function terrace_cg_solve
     integer(c_int) function terrace_cg_update_csr(operator, value) bind(c)
       import :: c_int, c_ptr, c_double
       type(c_ptr), value :: operator
       real(c_double), intent(in) :: value(*)
     end function terrace_cg_update_csr
     subroutine terrace_cg_free(operator) bind(c)
       import :: c_ptr
       type(c_ptr), value :: operator
     end subroutine terrace_cg_free
     integer(c_size_t) function strlen(text) bind(c)
       import :: c_size_t, c_ptr
       type(c_ptr), value :: text
     end function strlen
  end interface

contains

  !> The text of the last error of this thread.
  function terrace_message() result(text)
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: from
    integer :: i
    from = terrace_error()
    call c_f_pointer(from, letters, [int(strlen(from))])
    allocate (character(len=size(letters)) :: text)
    do i = 1, size(letters)
       text(i:i) = letters(i)
    end do
  end function terrace_message
end module terrace
