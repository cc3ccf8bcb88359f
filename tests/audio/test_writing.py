"""Files are written whole, or refused before any work."""

import os

import numpy as np
import pytest
import soundfile

from cosy_engine.audio.waveform import WRITABLE, check_writable, write_wav
from cosy_engine.errors import SettingInvalid


@pytest.mark.parametrize("ending", WRITABLE)
def test_three_minutes_can_be_written_in_every_format(tmp_path, ending):
    """The Vorbis encoder overran its stack when it got a long signal at once, which killed the process."""
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 24000 * 180).astype(np.float32)
    path = write_wav(tmp_path / f"long{ending}", noise, 24000)
    assert abs(soundfile.info(path).frames - len(noise)) < 4000  # mp3 pads its frames
    if ending == ".wav":
        assert soundfile.info(path).frames == len(noise)


def test_what_cannot_be_written_is_known_before(tmp_path):
    fifo = tmp_path / "pipe.wav"
    os.mkfifo(fifo)
    for path, says in ((fifo, "no ordinary file"), (tmp_path, "folder"), (tmp_path / "a" / "b.wav", "does not exist"), (tmp_path / "a.xyz", "ending")):  # fmt: skip
        with pytest.raises(SettingInvalid, match=says):
            check_writable(path)
