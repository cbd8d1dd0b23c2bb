import numpy as np
import pytest

from advisor.search.features import DERIVED, ELSEWHERE, OWN, features, with_columns
from advisor.search.surrogate import Belief, Process, _loss, fit, improvement, middle

CONFIGURATIONS = [
    {"x": x, "y": y, "name": name, "flag": flag}
    for x in (1, 2, 4, 8, 16, 32)
    for y in (16, 32, 48, 64)
    for name in ("a", "b", "c")
    for flag in (0, 1)
]
POINTS = features(CONFIGURATIONS)
RATIO = np.array([abs(np.log2(p["x"] / p["y"]) + 2) + (p["name"] == "b") * 0.5 for p in CONFIGURATIONS])


def standard(values):
    return (values - values.mean()) / values.std()


# --- features ---


def test_numbers_get_products_ratios_and_alignment_and_text_one_column_a_name():
    assert POINTS.kinds.count(OWN) == 4
    assert POINTS.kinds.count(DERIVED) == 3  # product, ratio, and what divides y, where 48 is no power of two
    assert sum(POINTS.kinds[g] == OWN for g in POINTS.group) == 6


def test_every_group_has_a_variance_of_one():
    for group in range(len(POINTS.kinds)):
        assert POINTS.matrix[:, POINTS.group == group].var(0).sum() == pytest.approx(1.0)


def test_equal_products_are_equal_in_a_column():
    listed = [{"x": x, "y": y} for x in (1, 2, 4, 8) for y in (1, 2, 4, 8)]
    matrix = features(listed).matrix
    assert any(abs(column[listed.index({"x": 1, "y": 8})] - column[listed.index({"x": 4, "y": 2})]) < 1e-9
               and column.std() > 0.5 and abs(column[0] - column[-1]) > 0.5 for column in matrix.T[2:])  # fmt: skip


def test_an_absent_parameter_lies_in_the_middle_with_a_column_that_says_so():
    points = features([{"k": 1}, {"k": 4}, {"k": 16}, {"k": "-"}, {"k": None}, {}])
    assert points.kinds == (OWN, OWN)
    assert points.matrix[3:, 0] == pytest.approx(points.matrix[1, 0])
    assert len(set(np.round(points.matrix[:, 1], 9))) == 2


def test_what_never_differs_is_no_column_and_nothing_at_all_is_one():
    assert features([{"a": 1, "b": 5}, {"a": 2, "b": 5}]).matrix.shape == (2, 1)
    assert features([{"a": 1}, {"a": 1}]).matrix.tolist() == [[0.0], [0.0]]


def test_further_columns_are_scaled_and_constant_ones_left_out():
    more = with_columns(POINTS, [RATIO, np.ones(len(RATIO))], ELSEWHERE)
    assert more.kinds[-1] == ELSEWHERE
    assert more.matrix.shape[1] == POINTS.matrix.shape[1] + 1
    assert more.matrix[:, -1] == pytest.approx(standard(RATIO))


# --- the process ---


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    rows = list(rng.permutation(len(RATIO))[:25])
    theta = np.append(middle(POINTS).weights, middle(POINTS).noise) + 0.3
    y = standard(RATIO[rows])
    _, gradient = _loss(POINTS, rows, y, theta)
    for k in range(len(theta)):
        step = np.zeros(len(theta))
        step[k] = 1e-4
        slope = (_loss(POINTS, rows, y, theta + step)[0] - _loss(POINTS, rows, y, theta - step)[0]) / 2e-4
        assert gradient[k] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_the_process_interpolates_predicts_and_is_sure_where_it_has_seen():
    rows = list(np.random.default_rng(1).permutation(len(RATIO))[:40])
    y = standard(RATIO[rows])
    process = Process(POINTS, fit(POINTS, rows, y), rows)
    found = process.believe(y)
    others = [i for i in range(len(RATIO)) if i not in rows]
    assert np.abs(found.mean[rows] - y).max() < 0.2
    assert found.deviation[rows].mean() < 0.5 * found.deviation[others].mean()
    assert np.corrcoef(found.mean[others], RATIO[others])[0, 1] > 0.9


def test_rows_added_one_by_one_are_the_rows_given_at_once_and_can_be_taken_back():
    rows = [int(i) for i in np.random.default_rng(2).permutation(len(RATIO))[:60]]
    y = standard(RATIO[rows])
    scales = fit(POINTS, rows[:10], y[:10])
    process, whole = Process(POINTS, scales, rows[:10]), Process(POINTS, scales, rows)
    before = process.believe(y[:10])
    for index in rows[10:]:
        process.add(index)
    for one, other in zip(process.believe(y), whole.believe(y), strict=True):
        assert one == pytest.approx(other, abs=2e-3)
    process.without(50)
    for one, other in zip(process.believe(y[:10]), before, strict=True):
        assert one == pytest.approx(other, abs=2e-3)


def test_expected_improvement_is_that_of_many_draws():
    belief = Belief(np.array([0.0, 0.5, -0.3]), np.array([1.0, 0.4, 0.1]))
    draws = np.random.default_rng(3).normal(belief.mean, belief.deviation, (400_000, 3))
    assert improvement(belief, 0.2) == pytest.approx(np.maximum(0.2 - draws, 0.0).mean(0), rel=0.02)
