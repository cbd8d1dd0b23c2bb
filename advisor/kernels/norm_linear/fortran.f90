! variant {
!   "idea": "one after the other in Fortran: the same loops as chain", "mirrors": ["chain"],
!   "language": "fortran", "symbol": "norm_linear_fortran", "dtypes": ["float32", "float64"], "requires": [],
!   "reads": "batch * n * (2 * d_model + d_model * d_out) + d_model", "writes": "batch * n * (d_model + d_out)",
!   "mapping": "equal contiguous rows a thread, in both phases", "rank": 85
! }

! Buffers: x [rows][d], g [d], w [o][d], y [rows][o] as C sees them; dims: batch, d_model, d_out, n.
integer(c_int) function norm_linear_fortran(buffers, dims, workspace, threads) bind(C, name="norm_linear_fortran")
  use iso_c_binding
  implicit none
  type(c_ptr), intent(in) :: buffers(4)
  integer(c_int64_t), intent(in) :: dims(4)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  real(ADV_KIND), parameter :: eps = real(1.0e-5_c_double, ADV_KIND) ! as in rms.py
  real(ADV_KIND), pointer, contiguous :: x(:, :), g(:), w(:, :), y(:, :), normed(:, :)
  integer(c_int64_t) :: d, o, rows

  d = dims(2)
  o = dims(3)
  rows = dims(1) * dims(4)
  call c_f_pointer(buffers(1), x, [d, rows])
  call c_f_pointer(buffers(2), g, [d])
  call c_f_pointer(buffers(3), w, [d, o])
  call c_f_pointer(buffers(4), y, [o, rows])
  call c_f_pointer(workspace, normed, [d, rows])
  call all_rows(x, g, w, y, normed)
  norm_linear_fortran = 0

contains

  pure real(ADV_KIND) function product_of(a, b, count)
    integer(c_int64_t), intent(in) :: count
    real(ADV_KIND), intent(in) :: a(count), b(count)
    integer(c_int64_t) :: k
    product_of = 0
    !$omp simd reduction(+ : product_of)
    do k = 1, count
      product_of = product_of + a(k) * b(k)
    end do
  end function

  subroutine all_rows(x, g, w, y, normed)
    real(ADV_KIND), intent(in) :: x(d, rows), g(d), w(d, o)
    real(ADV_KIND), intent(out) :: y(o, rows)
    real(ADV_KIND), intent(inout) :: normed(d, rows)
    integer(c_int64_t) :: i, j
    real(ADV_KIND) :: scale

    !$omp parallel num_threads(threads) private(j, scale)
    !$omp do schedule(static)
    do i = 1, rows
      scale = 1 / sqrt(product_of(x(1, i), x(1, i), d) / real(d, ADV_KIND) + eps)
      do j = 1, d
        normed(j, i) = x(j, i) * scale * g(j)
      end do
    end do
    !$omp end do
    !$omp do schedule(static)
    do i = 1, rows
      do j = 1, o
        y(j, i) = product_of(normed(1, i), w(1, j), d)
      end do
    end do
    !$omp end do
    !$omp end parallel
  end subroutine
end function

integer(c_int64_t) function norm_linear_fortran_workspace(dims, threads) bind(C, name="norm_linear_fortran_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(4)
  integer(c_int), value :: threads
  real(ADV_KIND) :: one
  norm_linear_fortran_workspace = dims(1) * dims(4) * dims(2) * storage_size(one) / 8
end function
