! heat.cpp in Fortran. mpirun -n 4 ./heat_f 40 50 10
program heat
  use, intrinsic :: iso_c_binding
  use mpi
  use terrace
  implicit none
  integer(c_int64_t) :: nx = 40, ny = 50, n, each, first, count, c, i, x
  integer :: steps = 10, step, rank, size, code
  real(c_double), parameter :: k = 0.4d0
  real(c_double), allocatable :: ab(:, :), u(:)
  real(c_double) :: all
  type(c_ptr) :: ranks, factor
  type(terrace_report) :: report
  character(len=32) :: word

  call MPI_Init(code)
  if (command_argument_count() >= 3) then
     call get_command_argument(1, word); read (word, *) nx
     call get_command_argument(2, word); read (word, *) ny
     call get_command_argument(3, word); read (word, *) steps
  end if
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, size, code)
  call check(terrace_open(MPI_COMM_WORLD, c_null_ptr, ranks))
  n = nx * ny
  each = (n + size - 1) / size
  first = min(n, each * rank)
  count = min(each, n - first)
  allocate (ab(0:nx, count), u(count))
  ab = 0
  do c = 1, count
     i = first + c - 1
     x = mod(i, nx)
     ab(0, c) = 1 + 4 * k
     if (x + 1 < nx) ab(1, c) = -k
     if (i + nx < n) ab(nx, c) = -k
     u(c) = exp(-0.05d0 * real((x - nx / 2)**2, c_double))
  end do
  call check(terrace_band_factor_make(ranks, n, nx, first, count, ab, 0_c_int64_t, 1, 0, factor, report))
  do step = 1, steps
     call check(terrace_band_factor_solve(factor, first, count, 1_c_int64_t, u, 0_c_int64_t, report))
  end do
  call MPI_Reduce(sum(u), all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, code)
  if (rank == 0) print '(a, i0, a, f0.9, a, f0.6)', 'heat after ', steps, ' steps: ', all, ', log det ', &
       report%log_abs_determinant
  call terrace_band_factor_free(factor)
  call terrace_close(ranks)
  call MPI_Finalize(code)

contains

  subroutine check(code)
    integer(c_int), intent(in) :: code
    integer :: ignored
    if (code == terrace_done) return
    print '(a)', terrace_message()
    call MPI_Abort(MPI_COMM_WORLD, int(code), ignored)
  end subroutine check
end program heat
