! variant {
!   "idea": "row by row in Fortran: the same loops as naive",
!   "language": "fortran", "symbol": "mlp_fortran", "dtypes": ["float32", "float64"], "requires": [],
!   "mirrors": ["naive"],
!   "reads": "batch * n * (d_model + 3 * d_model * d_ff)", "writes": "batch * n * d_model",
!   "mapping": "equal contiguous rows a thread", "rank": 85
! }

! Buffers: x [rows][d], wg, wu [f][d], wd [d][f], y [rows][d] as C sees them; dims: batch, d_model, d_ff, n.
integer(c_int) function mlp_fortran(buffers, dims, workspace, threads) bind(C, name="mlp_fortran")
  use iso_c_binding
  use omp_lib
  implicit none
  type(c_ptr), intent(in) :: buffers(5)
  integer(c_int64_t), intent(in) :: dims(4)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  real(ADV_KIND), pointer, contiguous :: x(:, :), wg(:, :), wu(:, :), wd(:, :), y(:, :), h(:, :)
  integer(c_int64_t) :: d, f, rows, width

  d = dims(2)
  f = dims(3)
  rows = dims(1) * dims(4)
  width = (f + 15) / 16 * 16 ! of a thread's h, which ends with a whole cache line
  call c_f_pointer(buffers(1), x, [d, rows])
  call c_f_pointer(buffers(2), wg, [d, f])
  call c_f_pointer(buffers(3), wu, [d, f])
  call c_f_pointer(buffers(4), wd, [f, d])
  call c_f_pointer(buffers(5), y, [d, rows])
  call c_f_pointer(workspace, h, [width, int(threads, c_int64_t)])
  call all_rows(x, wg, wu, wd, y, h)
  mlp_fortran = 0

contains

  pure real(ADV_KIND) function product_of(a, b, count)
    integer(c_int64_t), intent(in) :: count
    real(ADV_KIND), intent(in) :: a(count), b(count)
    integer(c_int) :: k ! flang 22 knows simd loops over this kind alone
    product_of = 0
    !$omp simd reduction(+ : product_of)
    do k = 1, int(count, c_int)
      product_of = product_of + a(k) * b(k)
    end do
  end function

  ! Far to the left exp overflows to infinity, by which is divided: the limit is 0.
  pure real(ADV_KIND) function silu(a)
    real(ADV_KIND), intent(in) :: a
    silu = 0
    if (a > -80) silu = a / (1 + exp(-a))
  end function

  subroutine all_rows(x, wg, wu, wd, y, h)
    real(ADV_KIND), intent(in) :: x(d, rows), wg(d, f), wu(d, f), wd(f, d)
    real(ADV_KIND), intent(out) :: y(d, rows)
    real(ADV_KIND), intent(inout) :: h(width, threads)
    integer(c_int64_t) :: i, j, own

    !$omp parallel do num_threads(threads) schedule(static) private(j, own)
    do i = 1, rows
      own = omp_get_thread_num() + 1
      do j = 1, f
        h(j, own) = silu(product_of(x(1, i), wg(1, j), d)) * product_of(x(1, i), wu(1, j), d)
      end do
      do j = 1, d
        y(j, i) = product_of(h(1, own), wd(1, j), f)
      end do
    end do
    !$omp end parallel do
  end subroutine
end function

integer(c_int64_t) function mlp_fortran_workspace(dims, threads) bind(C, name="mlp_fortran_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(4)
  integer(c_int), value :: threads
  real(ADV_KIND) :: one
  mlp_fortran_workspace = (dims(3) + 15) / 16 * 16 * threads * storage_size(one) / 8
end function
