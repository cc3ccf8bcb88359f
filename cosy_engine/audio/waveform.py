"""Reference clips in, wav files out.

A clean 16-bit mono file goes through untouched: no level change, no trimming, no filter, so that its features equal
the official ones. Everything else is mended as little as possible and said in the clip's notes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from cosy_engine.audio.decode import MAX_BYTES, MAX_S, Decoded, check_size, decode, read_bytes
from cosy_engine.errors import ReferenceSilent, ReferenceTooLong, ReferenceTooShort, ReferenceUnreadable, SettingInvalid
from cosy_engine.types import Clip, to_int16

MIN_S = 0.5
SILENT_PEAK = 1e-3  # -60 dBFS: below, there is at most noise
DEAD_CHANNEL = 10 ** (-50 / 20)  # against the loudest channel
CANCELLED = 0.3  # a mean that is this much weaker than its channels has lost the voice (inverted phase)
DC_OFFSET = 0.01
OVERSHOOT = 1.1  # lossy codecs exceed full scale by a little; that is no news
LARGEST = 2.0**31  # floats on the scale of 32-bit integers are still sound; beyond is no number, and sums overflow
BAD_SHARE = 0.01  # of samples that are no numbers
LOW_RATE_HZ = 16000
RATE_GRID_HZ = 25  # odd rates are taken as the nearest multiple: 0.1 % of pitch at most, and filters stay small


def read_clip(
    source: str | Path | bytes | tuple[int, np.ndarray],
    *,
    name: str = "",
    max_bytes: int = MAX_BYTES,
    max_s: float = MAX_S,
    min_s: float = MIN_S,
) -> Clip:
    """A clip from a path, the bytes of a file, or (rate in Hz, samples (N,) or (N, C), integer or float).

    name: how messages call it. The result is mono at the file's own rate.
    Raises: ReferenceUnreadable: no audio in it. ReferenceTooShort, ReferenceTooLong: outside min_s .. max_s.
    ReferenceSilent: nothing louder than -60 dBFS.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        name = name or "the file"
        check_size(len(source), name, max_bytes)
        decoded = decode(bytes(source), name, max_s=max_s)
    elif isinstance(source, (str, Path)):
        name = name or Path(source).name or "the file"
        decoded = decode(read_bytes(source, max_bytes), name, max_s=max_s)
    else:
        name = name or "the recording"
        decoded = _from_array(source, name, max_s)
    return _clip(decoded, name, min_s)


WRITABLE = (".wav", ".flac", ".ogg", ".mp3")
BLOCK = 2**15  # samples written at a time


def check_writable(path: str | Path) -> Path:
    """The path, if a file can be written there.

    Raises: SettingInvalid: unknown ending, a folder, a missing folder, or no right to write; asked before work begins.
    """
    path = Path(path)
    try:
        path.exists()
    except OSError as error:
        raise SettingInvalid(f"{path.name[:60]} cannot be a file name ({error.strerror}): choose another") from error
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SettingInvalid(f"{path} is no ordinary file: choose another place")
    if path.is_dir():
        raise SettingInvalid(f"{path} is a folder: name a file in it, for example {path / 'out.wav'}")
    if path.suffix.lower() not in WRITABLE:
        raise SettingInvalid(f"{path.name} has no ending that says how to write it: use {', '.join(WRITABLE)}")
    if not path.parent.is_dir():
        raise SettingInvalid(f"the folder {path.parent} does not exist: create it, or choose another one")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise SettingInvalid(f"{path} cannot be written: choose another place")
    return path


def write_wav(path: str | Path, samples: np.ndarray, rate_hz: int) -> Path:
    """Write (N,) float32 as 16 bits with one fixed gain: wav, or flac, ogg, mp3 by the name. Returns the path.

    Raises: SettingInvalid: see check_writable, or the disk is full.
    """
    import soundfile

    path = check_writable(path)
    subtype = None if path.suffix.lower() in (".ogg", ".mp3") else "PCM_16"
    try:
        with soundfile.SoundFile(path, "w", rate_hz, 1, subtype=subtype) as file:
            for at in range(0, len(samples), BLOCK):  # the Vorbis encoder overruns its stack on one large write
                file.write(to_int16(samples[at : at + BLOCK]))
    except (soundfile.LibsndfileError, OSError) as error:
        raise SettingInvalid(f"{path} could not be written ({error}): is the disk full?") from error
    return path


def _clip(decoded: Decoded, name: str, min_s: float) -> Clip:
    notes = list(decoded.notes)
    channels, rate_hz = decoded.channels, decoded.rate_hz
    bad = ~(np.abs(channels) <= LARGEST)  # also where it is NaN
    if share := float(bad.mean()):
        if share > BAD_SHARE:
            raise ReferenceUnreadable(f"{name}: {share:.0%} of its samples are no numbers: export it again")
        channels = np.where(bad, np.float32(0), channels)
        notes.append(f"{name} holds samples that are no numbers; they were silenced")
    seconds = channels.shape[1] / rate_hz
    if seconds < min_s:
        raise ReferenceTooShort(
            f"{name} is {seconds:.2f} s long, at least {min_s:g} s are needed: record a longer clip (3 to 10 s is best)"
        )
    samples, more = to_mono(channels)
    notes += more
    offset = float(samples.mean(dtype=np.float64))
    if abs(offset) > DC_OFFSET:
        samples = samples - np.float32(offset)
        notes.append("a constant offset was removed")
    peak = float(np.abs(samples).max())
    if peak < SILENT_PEAK:
        raise ReferenceSilent(f"{name} is silent: check the microphone or choose another clip")
    if peak > 1.0:
        samples = samples / np.float32(peak)
        if peak > OVERSHOOT:
            notes.append(f"the level exceeded full scale ({peak:.1f}) and was scaled down")
    if rate_hz < LOW_RATE_HZ:
        notes.append(
            f"the clip has {rate_hz} Hz: the voice will sound dull, as on a telephone; 16000 Hz or more is better"
        )
    rate_hz = max(RATE_GRID_HZ, RATE_GRID_HZ * round(rate_hz / RATE_GRID_HZ))
    samples = np.ascontiguousarray(samples, dtype=np.float32)
    digest = hashlib.sha256(f"{rate_hz}\n".encode() + samples.tobytes()).hexdigest()
    return Clip(samples, rate_hz, digest, tuple(notes))


def to_mono(channels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """(C, N) -> ((N,), notes): the mean of the channels that carry sound, as the models' own loader takes it; where
    inverted channels would cancel, the loudest one alone."""
    if len(channels) == 1:
        return channels[0], []
    levels = np.sqrt(np.mean(np.square(channels, dtype=np.float64), axis=1))
    alive = levels > max(levels.max() * DEAD_CHANNEL, 1e-6)
    notes = []
    if alive.any() and not alive.all():
        channels, levels = channels[alive], levels[alive]
        if len(alive) == 2:
            notes.append(f"only the {'left' if alive[0] else 'right'} channel has sound; it alone is used")
        else:
            notes.append(f"{len(alive) - len(channels)} of {len(alive)} channels are silent and were left out")
    mean = channels.mean(axis=0, dtype=np.float32)
    if len(channels) > 1 and np.sqrt(np.mean(np.square(mean, dtype=np.float64))) < CANCELLED * levels.max():
        notes.append("the channels cancel each other (inverted phase); the loudest one alone is used")
        return channels[int(levels.argmax())], notes
    return mean, notes


def _from_array(source: tuple[int, np.ndarray], name: str, max_s: float) -> Decoded:
    try:
        rate_hz, samples = source
        rate_hz, samples = int(rate_hz), np.asarray(samples)
    except (TypeError, ValueError) as error:
        raise ReferenceUnreadable(f"{name} is no audio: give a file, or a pair of sample rate and samples") from error
    if samples.ndim not in (1, 2) or not samples.size or samples.dtype.kind not in "iuf":
        raise ReferenceUnreadable(f"{name} holds no samples: record it again")
    if not 4000 <= rate_hz <= 384_000:
        raise ReferenceUnreadable(f"{name} claims {rate_hz} Hz, which cannot be right: record it again")
    if max(samples.shape) > max_s * rate_hz:
        raise ReferenceTooLong(
            f"{name} is longer than {max_s:.0f} s, which is as much as is read: cut out 3 to 10 s of it"
        )
    kind = samples.dtype.kind
    if kind != "f":
        bits = 8 * samples.dtype.itemsize
        middle = 2 ** (bits - 1) if kind == "u" else 0
        samples = (samples.astype(np.float64) - middle) / 2 ** (bits - 1)
    channels = samples[None] if samples.ndim == 1 else samples.T
    if channels.shape[0] > channels.shape[1]:  # given as (C, N)
        channels = channels.T
    return Decoded(np.ascontiguousarray(channels, dtype=np.float32), rate_hz)
