! variant {
!   "idea": "split and grouped in Fortran: rows split over threads, one pass over a block serves all heads that share it",
!   "language": "fortran", "symbol": "decode_fortran", "dtypes": ["float32", "float64"], "requires": [],
!   "mirrors": ["grouped", "split"],
!   "macros": {"ADV_D": "head_dim", "ADV_G": "heads // kv_heads"},
!   "run_knobs": {"block": [16, 64, 128]}, "defaults": {"block": 128},
!   "valid": ["head_dim <= 512", "heads // kv_heads <= 64"],
!   "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
!   "atomics": "0",
!   "mapping": "rows of all caches laid end to end, equal contiguous shares a thread; one counter update a part",
!   "rank": 85
! }

! The same ONF as grouped.c, and with one head a cache as split.c: team.h says how a team shares the rows.
#ifndef ADV_D
#define ADV_D 64
#endif
#ifndef ADV_G
#define ADV_G 1
#endif
#define WIDTH ((ADV_D + 2 + 15) / 16 * 16)
#define MOST_ROWS 128

! Buffers: q [b][h][d], k, v [b][g][n][d], out [b][h][d] as C sees them; dims: batch, heads, kv_heads, head_dim, n, block.
integer(c_int) function decode_fortran(buffers, dims, workspace, threads) bind(C, name="decode_fortran")
  use iso_c_binding
  use omp_lib
  implicit none
  type(c_ptr), intent(in) :: buffers(4)
  integer(c_int64_t), intent(in) :: dims(6)
  type(c_ptr), value :: workspace
  integer(c_int), value :: threads
  integer, parameter :: most = ADV_D + 1, total = ADV_D + 2 ! where a part has its maximum and its total
  real(ADV_KIND), parameter :: lowest = real(-1.0e30_c_double, ADV_KIND) ! for minus infinity, undefined with our flags
  real(ADV_KIND), parameter :: log2_e = real(1.4426950408889634074_c_double, ADV_KIND)
  real(ADV_KIND), pointer, contiguous :: q(:, :, :), k(:, :, :), v(:, :, :), out(:, :, :), parts(:, :, :, :)
  integer(c_int), pointer, contiguous :: counters(:, :)
  integer(c_int64_t) :: units, n, shares, unit
  integer(c_int) :: block, thread, team

  decode_fortran = 1
  if (dims(4) /= ADV_D .or. dims(2) /= ADV_G * dims(3) .or. dims(6) < 1 .or. dims(6) > MOST_ROWS) return
  units = dims(1) * dims(3)
  n = dims(5)
  block = int(dims(6), c_int)
  shares = min(int(threads, c_int64_t), units * n)
  call c_f_pointer(buffers(1), q, [int(ADV_D, c_int64_t), int(ADV_G, c_int64_t), units])
  call c_f_pointer(buffers(2), k, [int(ADV_D, c_int64_t), n, units])
  call c_f_pointer(buffers(3), v, [int(ADV_D, c_int64_t), n, units])
  call c_f_pointer(buffers(4), out, [int(ADV_D, c_int64_t), int(ADV_G, c_int64_t), units])
  call c_f_pointer(workspace, counters, [16_c_int64_t, units + 1]) ! a cache line each, so that units do not share one
  call c_f_pointer(c_loc(counters(1, units + 1)), parts, &
      [int(WIDTH, c_int64_t), int(ADV_G, c_int64_t), 2_c_int64_t, int(threads, c_int64_t)])
  do unit = 1, units
    counters(1, unit) = 0
  end do
  if (threads == 1) then
    call do_share(1_c_int64_t, q, k, v, out, parts)
  else
    !$omp parallel num_threads(threads) private(thread, team)
    team = omp_get_num_threads()
    do thread = omp_get_thread_num() + 1, int(shares, c_int), team
      call do_share(int(thread, c_int64_t), q, k, v, out, parts)
    end do
    !$omp end parallel
  end if
  decode_fortran = 0

contains

  ! Rows 0 .. units * n - 1 of the line; share t has those from share_start(t) up to share_start(t + 1) - 1.
  pure integer(c_int64_t) function share_start(share)
    integer(c_int64_t), intent(in) :: share
    share_start = units * n * (share - 1) / shares
  end function

  ! The share that holds a row of the line.
  pure integer(c_int64_t) function owner(row)
    integer(c_int64_t), intent(in) :: row
    owner = ((row + 1) * shares - 1) / (units * n) + 1
  end function

  ! A share covers some units whole, and at most two in part: its slot 2 has the part that opens a unit, 1 one that goes on.
  ! Explicit shapes, so that the compiler knows that the arrays are contiguous and do not overlap.
  subroutine do_share(share, q, k, v, out, parts)
    integer(c_int64_t), intent(in) :: share
    real(ADV_KIND), intent(in) :: q(ADV_D, ADV_G, units), k(ADV_D, n, units), v(ADV_D, n, units)
    real(ADV_KIND), intent(inout) :: out(ADV_D, ADV_G, units), parts(WIDTH, ADV_G, 2, threads)
    integer(c_int64_t) :: row, last, unit, from, to
    integer :: own, h
    row = share_start(share)
    last = share_start(share + 1)
    do while (row < last)
      unit = row / n + 1
      from = row - (unit - 1) * n
      to = min(last - (unit - 1) * n, n)
      own = merge(2, 1, from == 0)
      call attend(q(1, 1, unit), k(1, 1, unit), v(1, 1, unit), from, to, parts(1, 1, own, share))
      if (to - from == n) then
        do h = 1, ADV_G
          out(:, h, unit) = parts(1:ADV_D, h, own, share) / parts(total, h, own, share)
        end do
      else
        call arrive(unit)
      end if
      row = (unit - 1) * n + to
    end do
  end subroutine

  ! One part of a unit is done; whoever says so last merges. Acquire and release: the slots are seen whole.
  subroutine arrive(unit)
    integer(c_int64_t), intent(in) :: unit
    integer(c_int64_t) :: first, last
    integer(c_int) :: here
    first = owner((unit - 1) * n)
    last = owner(unit * n - 1)
    !$omp flush
    !$omp atomic capture
    counters(1, unit) = counters(1, unit) + 1
    here = counters(1, unit)
    !$omp end atomic
    !$omp flush
    if (here == last - first + 1) call merge_parts(unit, first, last)
  end subroutine

  subroutine merge_parts(unit, first, last)
    integer(c_int64_t), intent(in) :: unit, first, last
    real(ADV_KIND) :: joined(ADV_D), highest, weight, weights
    integer(c_int64_t) :: share
    integer :: h, own
    do h = 1, ADV_G
      highest = lowest
      do share = first, last
        highest = max(highest, parts(most, h, merge(2, 1, share == first), share))
      end do
      weights = 0
      joined = 0
      do share = first, last
        own = merge(2, 1, share == first)
        weight = exp2(parts(most, h, own, share) - highest)
        weights = weights + weight * parts(total, h, own, share)
        joined = joined + weight * parts(1:ADV_D, h, own, share)
      end do
      out(:, h, unit) = joined / weights
    end do
  end subroutine

  ! part [heads] from rows from .. to - 1 of one cache: weighted sum, maximum, total.
  subroutine attend(q, k, v, from, to, part)
    real(ADV_KIND), intent(in) :: q(ADV_D, ADV_G), k(ADV_D, 0:n - 1), v(ADV_D, 0:n - 1)
    integer(c_int64_t), intent(in) :: from, to
    real(ADV_KIND), intent(inout) :: part(WIDTH, ADV_G)
    real(ADV_KIND) :: scaled(ADV_D, ADV_G), s(MOST_ROWS, ADV_G)
    integer(c_int64_t) :: first
    integer(c_int) :: rows, h
    scaled = q * (log2_e / sqrt(real(ADV_D, ADV_KIND)))
    part(1:ADV_D, :) = 0
    part(most, :) = lowest
    part(total, :) = 0
    do first = from, to - 1, block
      rows = int(min(int(block, c_int64_t), to - first), c_int)
      call score(scaled, k(1, first), s, rows)
      do h = 1, ADV_G
        call weigh(s(1, h), rows, part(1, h))
      end do
      call add(s, v(1, first), part, rows)
    end do
  end subroutine

  pure subroutine score(q, k, s, rows)
    integer(c_int), intent(in) :: rows
    real(ADV_KIND), intent(in) :: q(ADV_D, ADV_G), k(ADV_D, rows)
    real(ADV_KIND), intent(inout) :: s(MOST_ROWS, ADV_G)
    real(ADV_KIND) :: dot
    integer(c_int) :: j, h, x
    do j = 1, rows
      do h = 1, ADV_G
        dot = 0
        !$omp simd reduction(+ : dot)
        do x = 1, ADV_D
          dot = dot + q(x, h) * k(x, j)
        end do
        s(j, h) = dot
      end do
    end do
  end subroutine

  ! Scores in powers of two to weights, in place. Raises the maximum, adds to the total, shrinks what was summed before.
  pure subroutine weigh(s, rows, part)
    integer(c_int), intent(in) :: rows
    real(ADV_KIND), intent(inout) :: s(MOST_ROWS), part(WIDTH)
    real(ADV_KIND) :: highest, weights
    integer(c_int) :: j
    highest = part(most)
    !$omp simd reduction(max : highest)
    do j = 1, rows
      highest = max(highest, s(j))
    end do
    if (highest > part(most)) then
      weights = exp2(part(most) - highest)
      part(1:ADV_D) = part(1:ADV_D) * weights
      part(total) = part(total) * weights
      part(most) = highest
    end if
    weights = 0
    !$omp simd reduction(+ : weights)
    do j = 1, rows
      s(j) = exp2(s(j) - highest)
      weights = weights + s(j)
    end do
    part(total) = part(total) + weights
  end subroutine

  pure subroutine add(s, v, part, rows)
    integer(c_int), intent(in) :: rows
    real(ADV_KIND), intent(in) :: s(MOST_ROWS, ADV_G), v(ADV_D, rows)
    real(ADV_KIND), intent(inout) :: part(WIDTH, ADV_G)
    integer(c_int) :: j, h, x
    do j = 1, rows
      do h = 1, ADV_G
        !$omp simd
        do x = 1, ADV_D
          part(x, h) = part(x, h) + s(j, h) * v(x, j)
        end do
      end do
    end do
  end subroutine

  ! 2^x for x up to 0, with the polynomials of frame/real.h, whose head says how exact and why no call. Not its rounding
  ! by a large number, which gfortran takes away: it reassociates where signs of zeros and traps do not count. An
  ! equivalence gives the bits, since flang makes a call of transfer.
  elemental real(ADV_KIND) function exp2(x)
    real(ADV_KIND), intent(in) :: x
    if (storage_size(x) == 32) then
      exp2 = real(exp2_float(real(x, c_float)), ADV_KIND)
    else
      exp2 = real(exp2_double(real(x, c_double)), ADV_KIND)
    end if
  end function

  elemental real(c_float) function exp2_float(x)
    real(c_float), intent(in) :: x
    real(c_float) :: clipped, f, f2, f4, low, middle, high
    integer(c_int32_t) :: bits, whole
    equivalence (low, bits)
    clipped = max(x, -125.0_c_float)
    whole = int(clipped - 0.5_c_float, c_int32_t) ! the nearest
    f = clipped - real(whole, c_float)
    f2 = f * f
    f4 = f2 * f2
    low = 1.0_c_float + 6.931471824645996e-1_c_float * f
    middle = 2.4022646248340607e-1_c_float + 5.550328642129898e-2_c_float * f
    high = 9.618489071726799e-3_c_float + 1.3399930903688073e-3_c_float * f
    low = (low + middle * f2) + (high + 1.534581242594868e-4_c_float * f2) * f4
    bits = bits + shiftl(whole, 23)
    exp2_float = low
  end function

  elemental real(c_double) function exp2_double(x)
    real(c_double), intent(in) :: x
    real(c_double) :: clipped, f, f2, f4, low, middle, high
    integer(c_int64_t) :: bits
    integer(c_int32_t) :: whole ! there are instructions for this kind alone
    equivalence (low, bits)
    clipped = max(x, -1021.0_c_double)
    whole = int(clipped - 0.5_c_double, c_int32_t) ! the nearest
    f = clipped - real(whole, c_double)
    f2 = f * f
    f4 = f2 * f2
    low = 1.0_c_double + 0.6931471805599453_c_double * f &
        + (0.24022650695910158_c_double + 0.055504108664821625_c_double * f) * f2
    middle = 0.009618129107587256_c_double + 0.001333355814640647_c_double * f &
        + (0.00015403530463724353_c_double + 1.5252733841556773e-05_c_double * f) * f2
    high = 1.3215432535912375e-06_c_double + 1.0178057087733941e-07_c_double * f &
        + (7.074194297288521e-09_c_double + 4.4558179083360645e-10_c_double * f) * f2
    low = low + (middle + high * f4) * f4
    bits = bits + shiftl(int(whole, c_int64_t), 52)
    exp2_double = low
  end function
end function

integer(c_int64_t) function decode_fortran_workspace(dims, threads) bind(C, name="decode_fortran_workspace")
  use iso_c_binding
  implicit none
  integer(c_int64_t), intent(in) :: dims(6)
  integer(c_int), value :: threads
  real(ADV_KIND) :: one
  decode_fortran_workspace = dims(1) * dims(3) * 64 &
      + int(threads, c_int64_t) * 2 * ADV_G * (WIDTH) * storage_size(one) / 8
end function
