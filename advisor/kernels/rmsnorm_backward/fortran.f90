! variant {
!   "idea": "one pass in Fortran: the same loops as partial",
!   "language": "fortran", "symbol": "rmsnorm_backward_fortran", "dtypes": ["float32", "float64"], "requires": [],
!   "mirrors": ["partial"],
!   "reads": "2 * batch * n * d_model + d_model", "writes": "batch * n * d_model + d_model",
!   "mapping": "equal contiguous rows a thread, then equal contiguous columns", "rank": 85
! }

! Buffers: x [rows][d], g [d], gy [rows][d], gx [rows][d], gg [d] as C sees them; dims: batch, d_model, n.
integer(c_int) function rmsnorm_backward_fortran(buffers, dims, workspace, threads) &
    bind(C, name="rmsnorm_backward_fortran")
  use iso_c_binding
  use omp_lib
  implicit none
  type(c_ptr), intent(in) :: buffers(5)
  integer(c_int64_t), intent(in) :: dims(3)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  real(ADV_KIND), parameter :: eps = real(1.0e-5_c_double, ADV_KIND) ! as in rms.py
  real(ADV_KIND), pointer, contiguous :: x(:, :), g(:), gy(:, :), gx(:, :), gg(:), sums(:, :)
  integer(c_int64_t) :: d, rows, width

  d = dims(2)
  rows = dims(1) * dims(3)
  width = (d + 15) / 16 * 16 ! of a thread's sums, which end with a whole cache line
  call c_f_pointer(buffers(1), x, [d, rows])
  call c_f_pointer(buffers(2), g, [d])
  call c_f_pointer(buffers(3), gy, [d, rows])
  call c_f_pointer(buffers(4), gx, [d, rows])
  call c_f_pointer(buffers(5), gg, [d])
  call c_f_pointer(workspace, sums, [width, int(threads, c_int64_t)])
  call all_rows(x, g, gy, gx, gg, sums)
  rmsnorm_backward_fortran = 0

contains

  subroutine all_rows(x, g, gy, gx, gg, sums)
    real(ADV_KIND), intent(in) :: x(d, rows), g(d), gy(d, rows)
    real(ADV_KIND), intent(out) :: gx(d, rows), gg(d)
    real(ADV_KIND), intent(inout) :: sums(width, threads)
    integer(c_int64_t) :: i, own
    integer(c_int) :: j ! flang 22 knows simd loops over this kind alone
    real(ADV_KIND) :: squares, through, r, back

    !$omp parallel num_threads(threads) private(i, j, own, squares, through, r, back)
    own = omp_get_thread_num() + 1
    sums(1:d, own) = 0
    !$omp do schedule(static)
    do i = 1, rows
      squares = 0
      through = 0
      !$omp simd reduction(+ : squares, through)
      do j = 1, int(d, c_int)
        squares = squares + x(j, i) * x(j, i)
        through = through + gy(j, i) * g(j) * x(j, i)
      end do
      r = 1 / sqrt(squares / real(d, ADV_KIND) + eps)
      back = through * r * r * r / real(d, ADV_KIND)
      !$omp simd
      do j = 1, int(d, c_int)
        gx(j, i) = r * gy(j, i) * g(j) - x(j, i) * back
        sums(j, own) = sums(j, own) + gy(j, i) * x(j, i) * r
      end do
    end do
    !$omp end do
    !$omp do schedule(static)
    do j = 1, int(d, c_int)
      gg(j) = sum(sums(j, :))
    end do
    !$omp end do
    !$omp end parallel
  end subroutine
end function

integer(c_int64_t) function rmsnorm_backward_fortran_workspace(dims, threads) &
    bind(C, name="rmsnorm_backward_fortran_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(3)
  integer(c_int), value :: threads
  real(ADV_KIND) :: one
  rmsnorm_backward_fortran_workspace = (dims(2) + 15) / 16 * 16 * threads * storage_size(one) / 8
end function
