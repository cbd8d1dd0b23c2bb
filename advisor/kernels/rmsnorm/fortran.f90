! variant {
!   "idea": "one pass in Fortran: the same loops as one_pass, column by column of an array that Fortran sees transposed",
!   "language": "fortran", "symbol": "rmsnorm_fortran", "dtypes": ["float32", "float64"], "requires": [],
!   "mirrors": ["one_pass"],
!   "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
!   "mapping": "equal contiguous rows a thread", "rank": 85
! }

! Buffers: x [rows][d], g [d], y [rows][d] as C sees them; dims: batch, d_model, n.
integer(c_int) function rmsnorm_fortran(buffers, dims, workspace, threads) bind(C, name="rmsnorm_fortran")
  use iso_c_binding
  implicit none
  type(c_ptr), intent(in) :: buffers(3)
  integer(c_int64_t), intent(in) :: dims(3)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  real(ADV_KIND), parameter :: eps = real(1.0e-5_c_double, ADV_KIND) ! as in rms.py
  real(ADV_KIND), pointer, contiguous :: x(:, :), g(:), y(:, :)
  integer(c_int64_t) :: d, rows

  d = dims(2)
  rows = dims(1) * dims(3)
  call c_f_pointer(buffers(1), x, [d, rows])
  call c_f_pointer(buffers(2), g, [d])
  call c_f_pointer(buffers(3), y, [d, rows])
  call scale_rows(x, g, y)
  rmsnorm_fortran = 0

contains

  ! Explicit shapes, so that the compiler knows that the arrays are contiguous and do not overlap.
  subroutine scale_rows(x, g, y)
    real(ADV_KIND), intent(in) :: x(d, rows), g(d)
    real(ADV_KIND), intent(out) :: y(d, rows)
    integer(c_int64_t) :: i
    integer(c_int) :: j ! flang 22 knows simd loops over this kind alone
    real(ADV_KIND) :: squares, scale

    !$omp parallel do num_threads(threads) schedule(static) private(j, squares, scale)
    do i = 1, rows
      squares = 0
      !$omp simd reduction(+ : squares)
      do j = 1, int(d, c_int)
        squares = squares + x(j, i) * x(j, i)
      end do
      scale = 1 / sqrt(squares / real(d, ADV_KIND) + eps)
      !$omp simd
      do j = 1, int(d, c_int)
        y(j, i) = x(j, i) * scale * g(j)
      end do
    end do
    !$omp end parallel do
  end subroutine
end function

integer(c_int64_t) function rmsnorm_fortran_workspace(dims, threads) bind(C, name="rmsnorm_fortran_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(3)
  integer(c_int), value :: threads
  rmsnorm_fortran_workspace = 0
end function
