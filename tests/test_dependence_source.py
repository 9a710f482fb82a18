"""Which of the inputs of a model is a text beside another one, that is read as a whole."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from barograph.probes.model.dependence import _has_source  # noqa: E402


def test_a_source_beside_what_is_written_is_known_from_masks_positions_and_targets() -> None:
    torch.manual_seed(0)
    text, other = torch.randint(3, 40, (8, 12)), torch.randint(3, 40, (8, 12))
    shifted = torch.cat([text[:, 1:], other[:, :1]], 1)
    answers = torch.where(torch.arange(12) < 6, -100, shifted)
    assert _has_source([text, torch.ones_like(text), other], text.shape)
    for beside in (
        torch.ones_like(text),
        text > 5,
        torch.arange(12).expand(8, 12),
        text,
        shifted,
        answers,
        other[:, :9],
    ):
        assert not _has_source([text, beside], text.shape)
    assert not _has_source([text], text.shape) and not _has_source([], text.shape)
