import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from diffclust.nn.ops import ASSIGNMENTS, hard, largest, softmax, sparsemax, squared_distances

quick = settings(deadline=None, derandomize=True, max_examples=50)
rows_of_logits = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=8)


def project_onto_simplex(v):
    """The t with Σ max(v - t, 0) = 1, by bisection."""
    low, high = min(v) - 1, max(v)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(entry - middle, 0) for entry in v) > 1:
            low = middle
        else:
            high = middle
    return [max(entry - high, 0) for entry in v]


def test_squared_distances_are_those_of_a_double_loop():
    x, centers = torch.rand(30, 6) - 0.5, torch.rand(5, 6) - 0.5
    naive = [[(a - b).square().sum() for b in centers.double()] for a in x.double()]
    torch.testing.assert_close(
        squared_distances(x, centers).double(), torch.tensor(naive).double(), rtol=1e-6, atol=1e-6
    )


def test_squared_distances_are_never_negative():
    x = 100 + torch.rand(200, 16)
    assert squared_distances(x, x).min() == 0


def test_squared_distances_pass_gradcheck():
    x, centers = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (6, 4))
    assert gradcheck(squared_distances, (x, centers))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_softmax_passes_gradcheck_and_divides_by_the_temperature(temperature):
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda v: softmax(v, temperature), (logits,))
    odds = softmax(logits, temperature)[:, 0] / softmax(logits, temperature)[:, 1]
    torch.testing.assert_close(odds, ((logits[:, 0] - logits[:, 1]) / temperature).exp())


def test_softmax_survives_large_logits():
    torch.testing.assert_close(softmax(torch.tensor([[1e6, 0.0]])), torch.tensor([[1.0, 0.0]]))


def test_hard_marks_the_largest_logit_and_carries_no_gradient():
    logits = torch.tensor([[0.1, 2.0, -1.0], [3.0, 2.9, 0.0]], requires_grad=True)
    assignment = hard(logits)
    assert assignment.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert not assignment.requires_grad


@quick
@given(rows_of_logits)
def test_sparsemax_is_the_projection_onto_the_simplex(v):
    projected = sparsemax(torch.tensor([v], dtype=torch.float64))
    torch.testing.assert_close(
        projected, torch.tensor([project_onto_simplex(v)], dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_sparsemax_has_exact_zeros_and_equals_a_worked_example():
    logits = torch.tensor([[0.3, 0.1, -0.9], [5.0, 0.0, 0.0]])  # threshold of the first row: (0.4 - 1) / 2
    torch.testing.assert_close(sparsemax(logits), torch.tensor([[0.6, 0.4, 0.0], [1.0, 0.0, 0.0]]))
    assert sparsemax(logits)[0, 2] == 0


def test_sparsemax_passes_gradcheck_away_from_its_kinks():
    logits = torch.tensor(
        [[0.3, 0.1, -0.9, -2.0], [1.0, 0.9, 0.8, 0.2], [3.0, 0.0, 0.1, 0.2], [0.0, 0.1, 0.2, 0.3]],
        dtype=torch.float64,
        requires_grad=True,
    )
    assert sparsemax(logits).gt(0).sum(1).tolist() == [2, 3, 1, 4]
    assert gradcheck(sparsemax, (logits,))


@pytest.mark.parametrize("name", sorted(ASSIGNMENTS))
@quick
@given(row=rows_of_logits, shift=st.floats(-50, 50))
def test_assignments_sum_to_one_and_ignore_a_common_shift(name, row, shift):
    logits = torch.tensor([row], dtype=torch.float64)
    assignment = ASSIGNMENTS[name](logits)
    assert assignment.sum().item() == pytest.approx(1)
    assert assignment.min() >= 0
    if name != "hard":  # where a rounding error may break a tie
        torch.testing.assert_close(ASSIGNMENTS[name](logits + shift), assignment, rtol=0, atol=1e-9)


def test_sparsemax_survives_large_logits():
    assert sparsemax(torch.tensor([[1e8, 0.0, 0.0]])).tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_largest_of_each_row(dtype):
    logits = torch.tensor([[0.0, 3.0, -1.0], [2.0, 1.0, 0.0]], dtype=dtype, requires_grad=True)
    assert largest(logits).tolist() == [1, 0]
