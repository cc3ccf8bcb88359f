"""Any audio or video file to float32 channels: soundfile first, PyAV for what it does not know; all in process.

Limits act while decoding, so a file cannot cost more memory than they allow, whatever its header claims.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosy_engine.errors import ReferenceTooLong, ReferenceUnreadable

MAX_BYTES = 200 * 2**20
MAX_S = 600.0
MAX_VALUES = (
    120_000_000  # samples times channels held at once: 480 MB; less in proportion where less than MAX_S is read
)
MAX_CHANNELS = 64
RATES_HZ = (4000, 384_000)  # outside, the header is lying
BLOCK_FRAMES = 1 << 16
CONVERT = "convert it to wav, flac, mp3 or m4a and try again"
# Containers that hold media themselves; playlists, concat scripts and text renderers would open other files.
FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,aac,mp3,ogg,flac,wav,w64,aiff,caf,au,asf,avi,mpegts,mpeg,flv,amr,ac3,eac3,"
    "ape,wv,tta"
)
# Decoders that strangers' bytes may reach: the usual ones of sound, none of video. FFmpeg has hundreds, and not all are sound
# themselves: 8.1.2 writes beyond its memory in the APAC one (CVE-2026-125267).
CODECS = (
    "aac", "aac_latm", "ac3", "adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "alac", "amrnb", "amrwb", "ape", "eac3", "flac", "gsm",
    "gsm_ms", "libopus", "libvorbis", "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "opus", "pcm_alaw", "pcm_f32be",
    "pcm_f32le", "pcm_f64be", "pcm_f64le", "pcm_mulaw", "pcm_s16be", "pcm_s16le", "pcm_s24be", "pcm_s24le", "pcm_s32be",
    "pcm_s32le", "pcm_s8", "pcm_u8", "tta", "vorbis", "wavpack", "wmalossless", "wmapro", "wmav1", "wmav2",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Decoded:
    """channels: (C, N) float32, not yet limited to [-1, 1]. notes: for the user."""

    channels: np.ndarray
    rate_hz: int
    notes: tuple[str, ...] = ()


def decode(data: bytes, name: str = "the file", *, max_s: float = MAX_S) -> Decoded:
    """Decode the bytes of a file.

    Raises: ReferenceUnreadable: not audio, or nothing of it decodes. ReferenceTooLong: more than max_s.
    """
    if not data:
        raise ReferenceUnreadable(f"{name} is empty (0 bytes): record or upload it again")
    found = _by_soundfile(data, name, max_s)
    if found is None:
        found = _by_av(data, name, max_s)
    if found.channels.shape[1] == 0:
        raise ReferenceUnreadable(f"{name} holds no sound: {CONVERT}")
    return found


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a file, after its size was checked.

    Raises: ReferenceUnreadable: not there, not a file, not readable, or too big.
    """
    path = Path(path)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is no ordinary file" if path.exists() else "does not exist"
            raise ReferenceUnreadable(f"{path.name} {what}: choose an audio file")
        check_size(path.stat().st_size, path.name, max_bytes)
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ReferenceUnreadable(f"{path.name[:80]!r} cannot be read ({error}): choose another file") from error


def check_size(size: int, name: str, max_bytes: int = MAX_BYTES) -> None:
    if size > max_bytes:
        raise ReferenceUnreadable(
            f"{name} has {size / 2**20:.0f} MB, at most {max_bytes / 2**20:.0f} MB are read: cut out 3 to 10 s of it"
        )


class _Bytes(io.BytesIO):
    """Refuses an impossible seek quietly: libsndfile tries them in damaged files, from a callback that cannot raise."""

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return super().seek(offset, whence)
        except ValueError:
            return self.tell()


def _by_soundfile(data: bytes, name: str, max_s: float) -> Decoded | None:
    """None when libsndfile does not know the format or gets nothing out of it."""
    import soundfile

    try:
        with soundfile.SoundFile(_Bytes(data)) as file:
            if file.subtype == "IMA_ADPCM":  # libsndfile 1.2.2 counts wrongly in it, CVE-2026-37555
                return None
            rate_hz, promised = file.samplerate, file.frames
            blocks, failed = _gathered(_soundfile_blocks(file), rate_hz, file.channels, name, max_s)
    except (soundfile.LibsndfileError, TypeError, ValueError):
        return None
    if not blocks.shape[1]:
        return None
    notes = ()
    if failed or blocks.shape[1] < promised or _wav_is_cut(data) or _ogg_is_cut(data):
        notes = (f"{name} is damaged or cut off: the {blocks.shape[1] / rate_hz:.1f} s that can be read are used",)
    return Decoded(blocks, rate_hz, notes)


def _soundfile_blocks(file) -> Iterator[np.ndarray]:
    while len(block := file.read(BLOCK_FRAMES, "float32", always_2d=True)):
        yield block.T


def _by_av(data: bytes, name: str, max_s: float) -> Decoded:
    import av

    try:
        with av.open(
            io.BytesIO(data), options={"format_whitelist": FORMATS, "codec_whitelist": ",".join(CODECS)}
        ) as container:
            if not container.streams.audio:
                raise ReferenceUnreadable(f"{name} has no sound track: choose another file")
            stream = next((s for s in container.streams.audio if s.codec_context), None)
            if stream is None or stream.codec_context.name not in CODECS:
                raise ReferenceUnreadable(f"{name} has sound in an unknown encoding: {CONVERT}")
            rate_hz, channels = stream.codec_context.sample_rate, stream.codec_context.channels
            blocks, failed = _gathered(_av_blocks(container, stream, rate_hz, channels), rate_hz, channels, name, max_s)
    except av.FFmpegError as error:
        raise ReferenceUnreadable(_why_unreadable(data, name)) from error
    except (ValueError, TypeError, OverflowError, MemoryError) as error:  # nonsense in a damaged header
        raise ReferenceUnreadable(_why_unreadable(data, name)) from error
    notes = ()
    if (failed or _ogg_is_cut(data)) and blocks.shape[1]:
        notes = (f"{name} is damaged or cut off: the {blocks.shape[1] / rate_hz:.1f} s that can be read are used",)
    return Decoded(blocks, rate_hz, notes)


def _av_blocks(container, stream, rate_hz: int, channels: int) -> Iterator[np.ndarray]:
    """Interleaved on the way: PyAV reads beyond its planes when there are more than 8 of them, and the process dies."""
    import av

    interleaved = av.AudioResampler(format="flt", rate=rate_hz)  # only the sample format changes
    for frame in container.decode(stream):
        for part in interleaved.resample(frame):
            if part.layout.nb_channels != channels:
                raise ValueError("the channel layout changes")
            yield part.to_ndarray().reshape(-1, channels).T
    for part in interleaved.resample(None):
        yield part.to_ndarray().reshape(-1, channels).T


def _gathered(
    blocks: Iterator[np.ndarray], rate_hz: int, channels: int, name: str, max_s: float
) -> tuple[np.ndarray, bool]:
    """((C, N) of all blocks, whether decoding broke off)."""
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1] or not 1 <= channels <= MAX_CHANNELS:
        raise ReferenceUnreadable(
            f"{name} claims {rate_hz} Hz and {channels} channels, which cannot be right: {CONVERT}"
        )
    most = int(min(max_s * rate_hz, MAX_VALUES * min(1.0, max_s / MAX_S) / channels))
    kept: list[np.ndarray] = []
    total, failed = 0, False
    try:
        for block in blocks:
            kept.append(np.ascontiguousarray(block, dtype=np.float32))
            total += block.shape[1]
            if total > most:
                raise ReferenceTooLong(
                    f"{name} is longer than {most / rate_hz:.0f} s, which is as much as is read: cut out 3 to 10 s of it"
                )
    except ReferenceTooLong:
        raise
    except Exception:  # both libraries raise many kinds for damaged data; what came before it is good
        failed = True
    return (np.concatenate(kept, axis=1) if kept else np.zeros((channels, 0), np.float32)), failed


def _wav_is_cut(data: bytes) -> bool:
    """Whether a RIFF header promises more bytes than there are (libsndfile silently takes what is left)."""
    if data[:4] != b"RIFF" or len(data) < 12:
        return False
    promised = struct.unpack("<I", data[4:8])[0] + 8
    return len(data) + 1 < promised < 0xFFFFFF00  # writers to a pipe put the largest number there


def _ogg_is_cut(data: bytes) -> bool:
    """Whether an Ogg file ends inside a page (its length is in no header, and libsndfile takes the whole pages)."""
    if data[:4] != b"OggS":
        return False
    page = data.rfind(b"OggS")
    if len(data) < page + 27:  # of a page's header, whose last byte counts the lengths that follow
        return True
    lengths = data[page + 27 : page + 27 + data[page + 26]]
    return len(data) < page + 27 + data[page + 26] + sum(lengths)


def _why_unreadable(data: bytes, name: str) -> str:
    head = data[:512]
    if head.startswith(b"version https://git-lfs"):
        return f"{name} is a Git LFS pointer, not the audio itself: download the real file"
    if not any(head):
        return f"{name} holds only zero bytes, the upload or download failed: get the file again"
    printable = sum(32 <= b < 127 or b in b"\t\r\n" for b in head)
    if printable > 0.95 * len(head):
        return f"{name} is a text file, not audio: choose an audio file"
    return f"{name} is not audio that can be read: {CONVERT}"
