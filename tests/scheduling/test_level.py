"""What the models hear of a reference has a usual level, whatever the clip's own."""

import math

import pytest
import torch

from cosy_engine.scheduling.level import FLOOR, changed_by, level_change_db


def mel(dbfs: float) -> torch.Tensor:
    return torch.full((100, 80), (dbfs + 29.0 - 10 * math.log10(80)) / 20 * math.log(10))


@pytest.mark.parametrize("level", [-31, -18, -9])
def test_a_usual_reference_is_left_as_it_is(level):
    assert level_change_db(mel(level)) == 0
    assert changed_by(mel(level), 0) is not None and torch.equal(changed_by(mel(level), 0), mel(level))


@pytest.mark.parametrize(("level", "change"), [(-40, 20), (-60, 26), (-80, 26), (-3, -17)])
def test_one_far_from_usual_is_brought_nearer_by_26_db_at_most(level, change):
    found = level_change_db(mel(level))
    assert found == pytest.approx(change, abs=0.1)
    torch.testing.assert_close(changed_by(mel(level), found), mel(level + change).clamp(min=FLOOR), atol=0.02, rtol=0)


def test_no_reference_has_no_level():
    assert level_change_db(torch.zeros(0, 80)) == 0


def test_silence_stays_at_the_mels_floor():
    assert float(changed_by(torch.full((10, 80), FLOOR), -17.0).min()) == pytest.approx(FLOOR)
