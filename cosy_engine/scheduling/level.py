"""How loud a reference is for the models, which give the output its level: one far from usual is brought nearer (pure).

A whisper from across the room would come out unheard; or, by a model that has heard no such level, as noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MEL_TO_DBFS = -29.0  # from the 90th percentile of a frame's mel energy to its rms; three voices agree within 0.3 dB
QUIET_DBFS, LOUD_DBFS = -32.0, -8.0  # a reference between the two is left as it is
WANTED_DBFS = -20.0  # where speech usually is
MOST_GAIN_DB = 26.0  # beyond that it is the recording's noise that is raised
FLOOR = math.log(1e-5)  # of the mel


def level_change_db(mel: Tensor) -> float:
    """What is missing to a usual level of a reference (F, M) natural-log mel; 0 where it is near enough."""
    if not len(mel):
        return 0.0
    energy = mel.double().exp().square().sum(1).sqrt()
    level = 20 * math.log10(max(float(torch.quantile(energy, 0.9)), 1e-9)) + MEL_TO_DBFS
    return 0.0 if QUIET_DBFS <= level <= LOUD_DBFS else min(WANTED_DBFS - level, MOST_GAIN_DB)


def changed_by(mel: Tensor, db: float) -> Tensor:
    """The mel of the same clip, louder by db."""
    return mel if db == 0 else (mel + db * math.log(10) / 20).clamp(min=FLOOR)
