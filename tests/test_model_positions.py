"""Along which dimension positions run: tables that are added to activations or multiplied with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from barograph.doctor.rules.activations.forward import PositionsElsewhere  # noqa: E402
from barograph.probes.model.attention import AttentionLook, watch  # noqa: E402
from barograph.probes.model.forward import ForwardSigns  # noqa: E402

ROWS, HEADS, PLACES, SIZE = 3, 4, 10, 8
ANGLES = torch.arange(20)[:, None] * 100.0 ** (-torch.arange(SIZE) / SIZE)
SINES = torch.where(torch.arange(SIZE) % 2 > 0, ANGLES.cos(), ANGLES.sin())
HEADED = torch.randn(ROWS, HEADS, PLACES, SIZE)
TABLE = torch.randn(20, SIZE, requires_grad=True)
COMPLEX = torch.polar(torch.ones(20, SIZE // 2), ANGLES[:, : SIZE // 2])


def turned(angles: Any) -> Any:
    return HEADED * angles.cos() + HEADED.flip(-1) * angles.sin()


def by_complex(lines: Any) -> Any:
    return torch.view_as_complex(HEADED.reshape(ROWS, HEADS, PLACES, -1, 2)) * lines


def embedded(places: Any) -> Any:
    return HEADED[:, 0] + functional.embedding(places, TABLE)


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: turned(ANGLES[:PLACES]), None),
        (lambda: turned(ANGLES[:HEADS, None]), 2.0),
        (lambda: by_complex(COMPLEX[:PLACES]), None),
        (lambda: by_complex(COMPLEX[:HEADS, None]), 1.0),
        (lambda: HEADED[:, 0] + SINES[:PLACES], None),
        (lambda: HEADED[:, 0] + SINES[:ROWS, None], 1.0),
        (lambda: HEADED[:, 0].transpose(0, 1) + SINES[:PLACES, None], None),  # places first
        (lambda: embedded(torch.arange(PLACES)), None),
        (lambda: embedded(torch.arange(ROWS)[:, None]), 1.0),
        (lambda: embedded(torch.zeros(ROWS, 1, dtype=torch.long)), 0.0),
        (lambda: HEADED * torch.rand(HEADS, 1, SIZE), 0.0),  # a scale of each head
        (lambda: HEADED * torch.rand(HEADS, 1, SIZE, requires_grad=True), None),
        (lambda: HEADED[:, 0] * (torch.rand(ROWS, 1, SIZE) > 0.5).float(), 0.0),  # dropout of whole features
        (lambda: HEADED[:, 0] + SINES[5 : 5 + ROWS, None], 0.0),  # times of noise, a line a row
    ],
)
def test_tables_that_run_along_heads_or_rows_are_counted(call: Any, count: float | None) -> None:
    torch.manual_seed(1)
    signs = ForwardSigns({id(TABLE)})
    with watch(AttentionLook(), signs):
        call()
    found = signs.end({PLACES}).get("positions_elsewhere")
    assert (found if found is None else float(found)) == count


@pytest.mark.parametrize(("value", "says"), [(1.0, True), (0.0, False)])
def test_positions_along_another_dimension_are_said_once(value: float, says: bool) -> None:
    columns = {"model/positions_elsewhere": (np.array([100, 200]), np.full(2, value))}
    assert [one.step for one in findings([PositionsElsewhere()], columns).values()] == ([0] if says else [])
