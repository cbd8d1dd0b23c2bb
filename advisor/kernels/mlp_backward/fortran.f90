! variant {
!   "idea": "row by row and then owner by owner in Fortran: the same loops as naive",
!   "language": "fortran", "symbol": "mlp_backward_fortran", "dtypes": ["float32", "float64"], "requires": [],
!   "mirrors": ["naive"],
!   "reads": "batch * n * (2 * d_model + 5 * d_model * d_ff) + 3 * batch * n * d_ff * (d_model + 1)",
!   "writes": "batch * n * (d_model + 3 * d_ff) + 3 * d_model * d_ff",
!   "mapping": "equal contiguous rows a thread, then equal contiguous rows of each gradient", "rank": 85
! }

! Buffers as C sees them: x [rows][d], wg, wu [f][d], wd [d][f], gy [rows][d]; gx [rows][d], gwg, gwu [f][d], gwd [d][f].
! dims: batch, d_model, d_ff, n. Workspace: ga, gb, h [rows][f] each.
integer(c_int) function mlp_backward_fortran(buffers, dims, workspace, threads) bind(C, name="mlp_backward_fortran")
  use iso_c_binding
  implicit none
  type(c_ptr), intent(in) :: buffers(9)
  integer(c_int64_t), intent(in) :: dims(4)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  real(ADV_KIND), pointer, contiguous :: x(:, :), wg(:, :), wu(:, :), wd(:, :), gy(:, :)
  real(ADV_KIND), pointer, contiguous :: gx(:, :), gwg(:, :), gwu(:, :), gwd(:, :), kept(:, :, :)
  integer(c_int64_t) :: d, f, rows

  d = dims(2)
  f = dims(3)
  rows = dims(1) * dims(4)
  call c_f_pointer(buffers(1), x, [d, rows])
  call c_f_pointer(buffers(2), wg, [d, f])
  call c_f_pointer(buffers(3), wu, [d, f])
  call c_f_pointer(buffers(4), wd, [f, d])
  call c_f_pointer(buffers(5), gy, [d, rows])
  call c_f_pointer(buffers(6), gx, [d, rows])
  call c_f_pointer(buffers(7), gwg, [d, f])
  call c_f_pointer(buffers(8), gwu, [d, f])
  call c_f_pointer(buffers(9), gwd, [f, d])
  call c_f_pointer(workspace, kept, [f, rows, 3_c_int64_t])
  call all_gradients(x, wg, wu, wd, gy, gx, gwg, gwu, gwd, kept(:, :, 1), kept(:, :, 2), kept(:, :, 3))
  mlp_backward_fortran = 0

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

  ! 1 / (1 + exp(-a)); far to the left, where exp overflows, the limit 0.
  pure real(ADV_KIND) function sigmoid(a)
    real(ADV_KIND), intent(in) :: a
    sigmoid = 0
    if (a > -80) sigmoid = 1 / (1 + exp(-a))
  end function

  subroutine all_gradients(x, wg, wu, wd, gy, gx, gwg, gwu, gwd, ga, gb, h)
    real(ADV_KIND), intent(in) :: x(d, rows), wg(d, f), wu(d, f), wd(f, d), gy(d, rows)
    real(ADV_KIND), intent(out) :: gx(d, rows), gwg(d, f), gwu(d, f), gwd(f, d)
    real(ADV_KIND), intent(inout) :: ga(f, rows), gb(f, rows), h(f, rows)
    integer(c_int64_t) :: i, j
    real(ADV_KIND) :: a, b, s, gh

    !$omp parallel num_threads(threads) private(i, j, a, b, s, gh)
    !$omp do schedule(static)
    do i = 1, rows
      ga(:, i) = 0 ! gh until it is ga
      gx(:, i) = 0
      do j = 1, d
        ga(:, i) = ga(:, i) + gy(j, i) * wd(:, j)
      end do
      do j = 1, f
        a = product_of(x(1, i), wg(1, j), d)
        b = product_of(x(1, i), wu(1, j), d)
        s = sigmoid(a)
        gh = ga(j, i)
        ga(j, i) = gh * b * s * (1 + a * (1 - s))
        gb(j, i) = gh * a * s
        h(j, i) = a * s * b
        gx(:, i) = gx(:, i) + ga(j, i) * wg(:, j) + gb(j, i) * wu(:, j)
      end do
    end do
    !$omp end do
    !$omp do schedule(static)
    do j = 1, f
      gwg(:, j) = 0
      gwu(:, j) = 0
      do i = 1, rows
        gwg(:, j) = gwg(:, j) + ga(j, i) * x(:, i)
        gwu(:, j) = gwu(:, j) + gb(j, i) * x(:, i)
      end do
    end do
    !$omp end do nowait
    !$omp do schedule(static)
    do j = 1, d
      gwd(:, j) = 0
      do i = 1, rows
        gwd(:, j) = gwd(:, j) + gy(j, i) * h(:, i)
      end do
    end do
    !$omp end do
    !$omp end parallel
  end subroutine
end function

integer(c_int64_t) function mlp_backward_fortran_workspace(dims, threads) bind(C, name="mlp_backward_fortran_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(4)
  integer(c_int), value :: threads
  real(ADV_KIND) :: one
  mlp_backward_fortran_workspace = 3 * dims(1) * dims(4) * dims(3) * storage_size(one) / 8
end function
