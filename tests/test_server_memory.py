"""What is kept stays within its bound, and the least recently used goes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barograph.views.server.memory import Memory


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=80))
def test_the_bound_holds_whatever_is_put_in(puts: list[tuple[int, int]]) -> None:
    memory = Memory(100)
    sizes: dict[int, int] = {}
    for key, size in puts:
        memory.put(key, (key, size), size)
        sizes[key] = size
        held = [one for one in range(10) if memory.get(one) is not None]
        assert memory.held == sum(sizes[one] for one in held) <= 100
        assert memory.get(key) == (key, size)


def test_the_least_recently_used_goes_first_and_a_giant_is_not_kept() -> None:
    memory = Memory(3)
    for key in "abc":
        memory.put(key, key, 1)
    assert memory.get("a") == "a"
    memory.put("d", "d", 1)
    assert memory.get("b") is None and memory.get("a") == "a"
    memory.put("e", "e", 4)
    assert memory.get("e") is None and len(memory) == 3
