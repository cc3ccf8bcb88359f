"""Any clip is read, mended with a note, or refused with the reason and the remedy."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosy_engine.audio.decode import _by_av, _by_soundfile
from cosy_engine.audio.features import resample
from cosy_engine.audio.waveform import read_clip, to_mono, write_wav
from cosy_engine.errors import ReferenceSilent, ReferenceTooLong, ReferenceTooShort, ReferenceUnreadable, UserError
from tests.audio import steady
from tests.audio.conftest import encoded, muxed


def sine(seconds: float = 1.0, rate_hz: int = 24000, level: float = 0.3, hz: float = 220.0) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate_hz)) / rate_hz)).astype(np.float32)


# What must not change


def test_a_clean_16_bit_mono_file_goes_through_untouched(clean_wav):
    clip = read_clip(clean_wav)
    plain, rate_hz = soundfile.read(io.BytesIO(clean_wav), dtype="float32")
    assert clip.rate_hz == rate_hz == 24000
    assert np.array_equal(clip.samples, plain)
    assert clip.notes == ()


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [("FLAC", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("AIFF", "PCM_16"), ("RF64", "PCM_16")],
)
def test_lossless_copies_are_the_same_clip(clean_wav, kind, subtype):
    clip = read_clip(clean_wav)
    copy = read_clip(encoded(clip.samples, 24000, kind, subtype))
    assert copy.digest == clip.digest
    assert np.array_equal(copy.samples, clip.samples)


def test_two_equal_channels_are_the_mono_clip(clean_wav):
    clip = read_clip(clean_wav)
    assert read_clip(encoded(np.stack([clip.samples] * 2, axis=1), 24000)).digest == clip.digest


@pytest.mark.parametrize(("kind", "subtype"), [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
def test_lossy_files_are_read_by_soundfile(speech, kind, subtype):
    clip = read_clip(encoded(speech[0].samples, 24000, kind, subtype))
    assert clip.seconds == pytest.approx(speech[0].seconds, abs=0.1)
    assert np.abs(clip.samples).max() > 0.1 and clip.notes == ()


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz"),
    [("ipod", "aac", 24000), ("adts", "aac", 24000), ("webm", "libopus", 48000), ("matroska", "flac", 24000), ("mp4", "aac", 44100), ("mov", "alac", 24000)],
)  # fmt: skip
def test_what_phones_and_browsers_record_is_read(speech, container, codec, rate_hz):
    import torch

    from cosy_engine.audio.features import resample

    samples = resample(torch.from_numpy(speech[0].samples), 24000, rate_hz).numpy()
    clip = read_clip(muxed(samples, rate_hz, container, codec))
    assert clip.rate_hz == rate_hz
    assert clip.seconds == pytest.approx(speech[0].seconds, abs=0.15)  # encoders pad to whole frames
    assert np.sqrt(np.mean(clip.samples**2)) == pytest.approx(np.sqrt(np.mean(samples**2)), rel=0.1)


def test_the_sound_of_a_video_is_used(speech):
    clip = read_clip(muxed(speech[0].samples, 24000, "mp4", "aac", video=True))
    assert clip.seconds == pytest.approx(speech[0].seconds, abs=0.15)


# Rates, depths, channels


@pytest.mark.parametrize("rate_hz", [8000, 11025, 16000, 22050, 32000, 44100, 48000, 88200, 96000, 192000])
def test_rates_from_8_to_192_khz_are_kept(rate_hz):
    clip = read_clip(encoded(sine(rate_hz=rate_hz), rate_hz))
    assert clip.rate_hz == rate_hz
    assert clip.seconds == pytest.approx(1.0)
    assert bool(clip.notes) == (rate_hz < 16000)  # telephone clips come with a note


def test_odd_rates_are_taken_as_a_near_round_one():
    """44101 Hz would need a filter of 24000 phases: a lying header must not cost gigabytes."""
    clip = read_clip(encoded(sine(rate_hz=44101), 44101))
    assert clip.rate_hz == 44100


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"])
def test_every_depth_is_read(subtype):
    clip = read_clip(encoded(sine(), 24000, "WAV", subtype))
    assert np.abs(clip.samples - sine()[: len(clip.samples)]).max() < 0.02  # 8 bits and companding


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6, 8])
def test_channels_become_their_mean(channels):
    wave = np.stack([sine(level=0.1 * (1 + i / 10)) for i in range(channels)], axis=1)
    clip = read_clip(encoded(wave, 24000, "WAV", "FLOAT"))
    assert np.allclose(clip.samples, wave.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("side", [0, 1])
def test_a_dead_channel_is_left_out(side):
    wave = np.zeros((24000, 2), np.float32)
    wave[:, side] = sine()
    clip = read_clip(encoded(wave, 24000, "WAV", "FLOAT"))
    assert np.array_equal(clip.samples, sine())
    assert ("left", "right")[side] in clip.notes[0]


def test_inverted_channels_do_not_cancel():
    wave = np.stack([sine(), -0.9 * sine()], axis=1)
    clip = read_clip(encoded(wave, 24000, "WAV", "FLOAT"))
    assert np.array_equal(clip.samples, sine())
    assert "cancel" in clip.notes[0]


def test_a_constant_offset_is_removed():
    clip = read_clip(encoded(sine() + np.float32(0.2), 24000, "WAV", "FLOAT"))
    assert abs(clip.samples.mean()) < 1e-6
    assert np.allclose(clip.samples, sine(), atol=1e-4)
    assert "offset" in clip.notes[0]


@pytest.mark.parametrize("gain", [1.4, 32768.0])
def test_floats_beyond_full_scale_are_scaled_not_clipped(gain):
    wave = sine(level=1.0) * np.float32(gain)
    clip = read_clip(encoded(wave, 24000, "WAV", "FLOAT"))
    assert np.abs(clip.samples).max() == pytest.approx(1.0, abs=1e-6)
    assert np.allclose(clip.samples, sine(level=1.0), atol=1e-3)


def test_a_few_samples_that_are_no_numbers_are_silenced():
    wave = sine()
    wave[100], wave[200] = np.nan, np.inf
    clip = read_clip(encoded(wave, 24000, "WAV", "FLOAT"))
    assert np.isfinite(clip.samples).all() and clip.samples[100] == 0
    assert "no numbers" in clip.notes[0]


def test_floats_near_the_largest_are_no_numbers(speech):
    """Their sum over two channels overflowed and the clip came out as NaN (found by fuzzing)."""
    channels = np.stack([speech[0].samples] * 2, axis=1)
    channels[1000:1003] = 3e38
    clip = read_clip((24000, channels))
    assert np.isfinite(clip.samples).all() and 0.05 < np.abs(clip.samples).max() <= 1.0
    assert any("no numbers" in note for note in clip.notes)


@pytest.mark.parametrize("channels", [1, 2, 8, 9, 12, 32])
def test_both_decoders_read_any_number_of_channels(channels):
    """PyAV's own planes end at 8: reading the ninth killed the process (found by fuzzing)."""
    wave = np.stack([sine(0.6, level=0.1 + i / 100) for i in range(channels)], axis=1)
    data = encoded(wave, 24000, "WAV", "FLOAT")
    for decoder in (_by_soundfile, _by_av):
        found = decoder(data, "clip.wav", 600.0)
        assert np.allclose(found.channels, wave.T, atol=1e-6)


# Refused, each with its reason


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", ReferenceUnreadable, "0 bytes"),
        (b"\0" * 5000, ReferenceUnreadable, "only zero bytes"),
        (b"This is my voice, honestly.\n" * 50, ReferenceUnreadable, "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", ReferenceUnreadable, "Git LFS pointer"),
        (b"#EXTM3U\nhttp://127.0.0.1:9/a.ts\n", ReferenceUnreadable, "text file"),
        (bytes(range(256)) * 30, ReferenceUnreadable, "not audio"),
        (encoded(sine(0.05), 24000), ReferenceTooShort, "0.05 s"),
        (encoded(sine(0.3), 24000), ReferenceTooShort, "at least 0.5 s"),
        (encoded(np.zeros(48000, np.float32), 24000), ReferenceSilent, "silent"),
        (encoded(sine(level=5e-4), 24000, "WAV", "FLOAT"), ReferenceSilent, "microphone"),
        (encoded(np.full(24000, 0.5, np.float32), 24000), ReferenceSilent, "silent"),  # an offset is no sound
        (encoded(np.full(24000, np.nan, np.float32), 24000, "WAV", "FLOAT"), ReferenceUnreadable, "no numbers"),
    ],
    ids=["empty", "zeros", "text", "pointer", "playlist", "noise", "50ms", "300ms", "silence", "hiss", "offset", "nan"],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_its_reason(data, error, words):
    with pytest.raises(error, match=words):
        read_clip(data, name="clip.wav")


def test_0_9_seconds_are_enough():
    assert read_clip(encoded(sine(0.9), 24000)).seconds == pytest.approx(0.9)


def test_a_video_without_sound_is_refused():
    import av

    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(10):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        file.mux(stream.encode(None))
    with pytest.raises(ReferenceUnreadable, match="no sound track"):
        read_clip(out.getvalue())


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_truncated_wav_is_used_as_far_as_it_goes(clean_wav, keep):
    part = clean_wav[: int(len(clean_wav) * keep)]
    clip = read_clip(part, name="cut.wav")
    assert clip.seconds == pytest.approx(keep * read_clip(clean_wav).seconds, abs=0.05)
    assert "cut off" in clip.notes[0]


@pytest.mark.parametrize("codec", ["vorbis", "libopus", "flac"])
def test_a_truncated_ogg_is_used_as_far_as_it_goes(codec):
    data = Path("assets/voices/low.ogg").read_bytes()  # Vorbis
    if codec != "vorbis":
        clip = read_clip(data)
        data = muxed(resample(torch.from_numpy(clip.samples), clip.rate_hz, 24000).numpy(), 24000, "ogg", codec)
    whole = read_clip(data)
    assert whole.notes == ()
    for keep in (0.55, 0.8, 1 - 1 / len(data)):
        cut = read_clip(data[: int(len(data) * keep)], name="cut.ogg")
        assert cut.notes[0].startswith("cut.ogg is damaged or cut off") and cut.seconds < whole.seconds


def test_a_truncated_m4a_is_refused_or_noted(speech):
    data = muxed(speech[0].samples, 24000, "ipod", "aac")
    try:
        clip = read_clip(data[: len(data) // 2])
    except ReferenceUnreadable as error:
        assert "convert" in str(error)
    else:
        assert "cut off" in clip.notes[0]


def test_a_lying_header_costs_nothing(clean_wav):
    """A data chunk that claims 4 GB, and a rate of 4 GHz."""
    huge = clean_wav[:40] + struct.pack("<I", 0xFFFFFFF0) + clean_wav[44:]
    assert read_clip(huge).seconds == pytest.approx(read_clip(clean_wav).seconds, abs=0.01)
    fast = clean_wav[:24] + struct.pack("<I", 0xFFFFFFF0) + clean_wav[28:]
    with pytest.raises(ReferenceUnreadable):
        read_clip(fast)


def test_limits_act_before_memory_is_spent(clean_wav, tmp_path):
    with pytest.raises(ReferenceTooLong, match="longer than 2 s"):
        read_clip(clean_wav, max_s=2.0)
    with pytest.raises(ReferenceUnreadable, match="at most"):
        read_clip(clean_wav, max_bytes=1000)
    file = tmp_path / "big.wav"
    file.write_bytes(clean_wav)
    with pytest.raises(ReferenceUnreadable, match=r"big\.wav has"):
        read_clip(file, max_bytes=1000)
    packed = encoded(np.zeros(24000 * 30, np.float32), 24000, "FLAC")  # 12 kB that decode to 30 s
    with pytest.raises(ReferenceTooLong):
        read_clip(packed, max_s=10)


# Names, folders, arrays


@pytest.mark.parametrize(
    "name", ["我的 声音（最终版）#1 😀.wav", "a" * 200 + ".wav", "..wav", "a%20b.wav", 'it\'s "mine".wav', "no suffix"]
)
def test_any_name_can_be_read(clean_wav, tmp_path, name):
    file = tmp_path / name
    file.write_bytes(clean_wav)
    assert read_clip(file).digest == read_clip(clean_wav).digest
    assert read_clip(str(file)).digest == read_clip(clean_wav).digest


@pytest.mark.parametrize("path", ["missing.wav", ".", "a\0b.wav", "x" * 5000])
def test_a_path_that_is_no_file_is_refused(tmp_path, path):
    with pytest.raises(ReferenceUnreadable, match="choose"):
        read_clip(tmp_path / path if "\0" not in path else path)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint8, np.float32, np.float64])
def test_arrays_of_every_kind_are_the_same_sound(kind):
    wave = sine()
    if kind is np.uint8:
        given = (wave * 127 + 128).astype(kind)
    elif np.issubdtype(kind, np.integer):
        given = (wave * np.iinfo(kind).max).astype(kind)
    else:
        given = wave.astype(kind)
    for shape in (given, given[:, None], np.stack([given, given], 1), np.stack([given, given], 0)):
        clip = read_clip((24000, shape))
        assert np.abs(clip.samples - wave).max() < 0.02  # 8 bits
        assert clip.rate_hz == 24000


@pytest.mark.parametrize(
    "given",
    [
        None,
        3,
        (24000, None),
        (24000, np.zeros((0,))),
        ("x", np.zeros(5)),
        (0, np.zeros(24000)),
        (24000, np.array(["a"])),
    ],
)
def test_what_is_no_audio_array_is_refused(given):
    with pytest.raises(ReferenceUnreadable):
        read_clip(given)


def test_a_recording_is_limited_like_a_file():
    with pytest.raises(ReferenceTooLong, match="longer than 2 s"):
        read_clip((24000, np.zeros(60000, np.int16)), max_s=2)


def test_mono_of_many_channels_leaves_silent_ones_out():
    wave = np.zeros((6, 24000), np.float32)
    wave[2] = sine()
    samples, notes = to_mono(wave)
    assert np.array_equal(samples, wave[2])
    assert "5 of 6" in notes[0]


# Writing


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_written_files_are_16_bits_without_wrap(tmp_path, suffix):
    wave = np.array([0.0, 0.5, 1.0, -1.0, 1.5, -1.5] * 100, np.float32)
    path = write_wav(tmp_path / f"out{suffix}", wave, 24000)
    assert soundfile.info(path).subtype == "PCM_16"
    back, rate_hz = soundfile.read(path, dtype="int16")
    assert rate_hz == 24000
    assert back[:6].tolist() == [0, 16383, 32767, -32767, 32767, -32767]


@pytest.mark.parametrize("suffix", [".ogg", ".mp3"])
def test_lossy_output_goes_by_the_name(tmp_path, suffix):
    path = write_wav(tmp_path / f"out{suffix}", sine(), 24000)
    assert read_clip(path).seconds == pytest.approx(1.0, abs=0.1)


# Fuzz


@settings(steady, max_examples=150)
@given(st.data())
def test_damaged_files_never_crash(data):
    """Bytes flipped, cut and inserted in a short file: a clip or a named error, nothing else."""
    damaged = bytearray(encoded(sine(0.6), 24000))
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, 60))] = data.draw(st.integers(0, 255))
    damaged = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        clip = read_clip(damaged)
    except UserError as error:
        assert str(error)
        return
    assert np.isfinite(clip.samples).all() and np.abs(clip.samples).max() <= 1.0


@settings(steady, max_examples=60)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"RIFF", b"fLaC", b"OggS", b"ID3\x03", b"\x1aE\xdf\xa3", b"\0\0\0\x20ftypM4A "]),
)
def test_random_bytes_never_crash(tail, head):
    with pytest.raises(UserError):
        read_clip(head + tail)


def test_only_usual_decoders_of_sound_see_a_file(monkeypatch):
    data = muxed(sine(1.0), 48000, "matroska", "libopus", video=True)
    assert _by_av(data, "x", 60.0).channels.shape[1] > 20_000
    monkeypatch.setattr("cosy_engine.audio.decode.CODECS", ("aac",))
    with pytest.raises(ReferenceUnreadable, match="unknown encoding"):
        _by_av(data, "x", 60.0)


@pytest.mark.parametrize("frames_in_block", [None, 50_000])
def test_ima_adpcm_is_left_to_the_second_library(frames_in_block):
    """libsndfile multiplies two numbers of the header in 32 bits: the second one lies as in CVE-2026-37555."""
    held = io.BytesIO()
    soundfile.write(held, sine(1.0), 24000, format="WAV", subtype="IMA_ADPCM")
    data = bytearray(held.getvalue())
    if frames_in_block:
        at = data.index(b"fmt ") + 8 + 18
        data[at : at + 2] = struct.pack("<H", frames_in_block)
    assert _by_soundfile(bytes(data), "x", 60.0) is None
    found = _by_av(bytes(data), "x", 60.0)
    assert found.channels.shape[1] == pytest.approx(24000, abs=2000)
