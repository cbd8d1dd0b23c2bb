! variant {
!   "kernel": "scale", "idea": "Fortran, ADV_STEP numbers at once",
!   "language": "fortran", "symbol": "scale_stepped", "dtypes": ["float32", "float64"],
!   "macros": {"ADV_WIDTH": "width"}, "build_knobs": {"ADV_STEP": [1, 4]}, "run_knobs": {"block": [1, 8]},
!   "defaults": {"ADV_STEP": 4, "block": 8}, "valid": ["width % ADV_STEP == 0"],
!   "reads": "n * width", "writes": "n * width", "mapping": "blocks of rows", "rank": 30
! }
#ifndef ADV_WIDTH
#define ADV_WIDTH 16
#endif
#ifndef ADV_STEP
#define ADV_STEP 4
#endif

integer(c_int) function scale_stepped(buffers, dims, workspace, threads) bind(C, name="scale_stepped")
  use iso_c_binding
  implicit none
  type(c_ptr), intent(in) :: buffers(2)
  integer(c_int64_t), intent(in) :: dims(3)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  real(ADV_KIND), pointer, contiguous :: x(:, :), y(:, :)
  integer(c_int64_t) :: i, j

  scale_stepped = 1
  if (dims(1) /= ADV_WIDTH) return
  call c_f_pointer(buffers(1), x, [dims(1), dims(2)])
  call c_f_pointer(buffers(2), y, [dims(1), dims(2)])
  !$omp parallel do num_threads(threads) schedule(dynamic, dims(3)) private(j)
  do i = 1, dims(2)
    do j = 1, ADV_WIDTH, ADV_STEP
      y(j:j + ADV_STEP - 1, i) = 3 * x(j:j + ADV_STEP - 1, i) + 1
    end do
  end do
  !$omp end parallel do
  scale_stepped = 0
end function

integer(c_int64_t) function scale_stepped_workspace(dims, threads) bind(C, name="scale_stepped_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(3)
  integer(c_int), value :: threads
  scale_stepped_workspace = 0
end function
