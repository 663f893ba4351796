"""Memory is that of both halves of a run, also of one that ends before the first second is over."""

from __future__ import annotations

from typing import Any

from bench.pipelines import halves, sampled


def test_the_halves_of_the_samples() -> None:
    assert halves([1.0, 9.0, 3.0, 4.0]) == {"memory MB, first half": 9.0, "second half": 4.0}
    assert halves([5.0]) == {"memory MB, first half": 5.0, "second half": 5.0}


def test_a_short_run_has_a_sample() -> None:
    class Tree:
        def memory_mb(self) -> float:
            return 7.0

    tree: Any = Tree()
    with sampled(tree) as found:
        pass
    assert found == [7.0]
