"""The three spectrograms of a clip and the resampler before them: torch only, batched, on any device.

Each model was trained on its own spectrogram, and they differ in every detail (window, edges, mel scale, log), so
they are three functions and not one with switches. All rows of a batch have the same length.
Origin: spec 03; pinned by the golden sets `features` and `resample`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosy_engine.errors import ReferenceTooShort
from cosy_engine.settings.model_spec import MelSpec

TOKENIZER_HZ = 16000  # rate of the speech tokenizer and of the speaker encoder
WHISPER_N_FFT, WHISPER_HOP, WHISPER_BINS = 400, 160, 128
FBANK_WINDOW, FBANK_HOP, FBANK_N_FFT, FBANK_BINS = 400, 160, 512, 80
FBANK_FLOOR = 1.1920929e-7  # float32 epsilon: Kaldi's floor before the log
RESAMPLE_ZEROS, RESAMPLE_ROLLOFF = 6, 0.99


def resample(wave: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Band-limited resampling with a Hann-windowed sinc, the filter that the models' clips went through.

    soxr's and librosa's filters are not this one and move features by more than the tolerances.
    Args: wave: (..., N) float32. Returns: (..., ceil(N * to_hz / from_hz)) float32; the same tensor for equal rates.
    """
    if from_hz == to_hz:
        return wave
    divisor = math.gcd(from_hz, to_hz)
    old, new = from_hz // divisor, to_hz // divisor
    kernel, width = _resample_kernel(old, new)
    kernel = kernel.to(wave.device)
    rows = wave.reshape(-1, 1, wave.shape[-1]).float()
    length = wave.shape[-1]
    phases = F.conv1d(F.pad(rows, (width, width + old)), kernel, stride=old)  # (rows, new, frames)
    out = phases.transpose(1, 2).reshape(len(rows), -1)[:, : -(-new * length // old)]
    return out.reshape(*wave.shape[:-1], -1)


def whisper_log_mel(wave: Tensor) -> Tensor:
    """Log-mel of the speech tokenizer.

    The dynamic range is cut at 8 decades below the loudest bin of the whole row, so a row must be one whole clip.
    Args: wave: (B, N) float32 in [-1, 1] at 16 kHz. Returns: (B, 128, N // 160) float32, about -1 to 2.
    Raises: ReferenceTooShort: too few samples for the reflected edges.
    """
    _need(wave, WHISPER_N_FFT // 2 + 1, TOKENIZER_HZ)
    spectrum = torch.stft(
        wave, WHISPER_N_FFT, WHISPER_HOP, window=_hann(WHISPER_N_FFT, wave.device), center=True, return_complex=True
    )
    power = spectrum[..., :-1].abs().square()  # the last frame is dropped
    filters = mel_filters(TOKENIZER_HZ, WHISPER_N_FFT, WHISPER_BINS, 0.0, None).to(wave.device)
    log = (filters @ power).clamp(min=1e-10).log10()
    log = torch.maximum(log, log.amax(dim=(-2, -1), keepdim=True) - 8.0)
    return (log + 4.0) / 4.0


def kaldi_fbank(wave: Tensor, *, center: bool = True) -> Tensor:
    """Log filter-bank energies of the speaker encoder, without dither, edges cut ("snip").

    Args: wave: (B, N) float32 in [-1, 1] at 16 kHz (not the 16-bit range). center: subtract each bin's mean over the
    clip, which is what the encoder is fed; False gives the raw energies.
    Returns: (B, 1 + (N - 400) // 160, 80) float32 natural log.
    Raises: ReferenceTooShort: fewer than 400 samples.
    """
    _need(wave, FBANK_WINDOW, TOKENIZER_HZ)
    frames = wave.unfold(-1, FBANK_WINDOW, FBANK_HOP)  # (B, M, 400)
    frames = frames - frames.mean(dim=-1, keepdim=True)
    before = torch.cat([frames[..., :1], frames[..., :-1]], dim=-1)  # the first sample stands before itself
    frames = (frames - 0.97 * before) * _povey(wave.device)
    power = torch.fft.rfft(frames, n=FBANK_N_FFT).abs().square()[..., :-1]  # the last bin has no weight
    energy = power @ kaldi_filters().to(wave.device).T
    log = energy.clamp(min=FBANK_FLOOR).log()
    return log - log.mean(dim=-2, keepdim=True) if center else log


def flow_mel(wave: Tensor, spec: MelSpec) -> Tensor:
    """Mel spectrogram the flow was trained on; it differs from the speech tokenizer's in bins, window and log.

    Args: wave: (B, N) float32 in [-1, 1] at spec.rate_hz; resampling is the caller's.
    Returns: (B, F, M) natural log, floored at 1e-5; F = N // spec.hop_samples.
    Raises: ReferenceTooShort: fewer samples than one window; the message gives the needed seconds.
    Origin: release config `feat_extractor` (fmax 8000 Hz in v2, none in v3).
    """
    _need(wave, spec.win_samples, spec.rate_hz)
    edge = (spec.n_fft - spec.hop_samples) // 2
    padded = F.pad(wave.unsqueeze(1), (edge, edge), mode="reflect").squeeze(1)
    spectrum = torch.stft(
        padded, spec.n_fft, spec.hop_samples, spec.win_samples, _hann(spec.win_samples, wave.device),
        center=False, return_complex=True,
    )  # fmt: skip
    magnitude = torch.sqrt(torch.view_as_real(spectrum).square().sum(-1) + 1e-9)
    filters = mel_filters(spec.rate_hz, spec.n_fft, spec.bins, spec.fmin_hz, spec.fmax_hz).to(wave.device)
    return (filters @ magnitude).clamp(min=1e-5).log().transpose(1, 2)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a cached tensor must also serve training code
def mel_filters(rate_hz: int, n_fft: int, bins: int, fmin_hz: float, fmax_hz: float | None) -> Tensor:
    """Triangles of equal area on the Slaney mel scale: (bins, n_fft // 2 + 1) float32. fmax_hz None is Nyquist.

    Slaney's scale is linear (200/3 Hz a mel) up to 1 kHz and logarithmic (27 mels for a factor of 6.4) above.
    Computed in float64; equals librosa.filters.mel to rounding.
    """
    step, knee = 200.0 / 3.0, 15.0
    log_step = math.log(6.4) / 27.0

    def to_mel(hz: float) -> float:
        return hz / step if hz < 1000.0 else knee + math.log(hz / 1000.0) / log_step

    mels = np.linspace(to_mel(fmin_hz), to_mel(fmax_hz or rate_hz / 2), bins + 2)
    edges = np.where(mels < knee, mels * step, 1000.0 * np.exp(log_step * (np.maximum(mels, knee) - knee)))
    bins_hz = np.linspace(0.0, rate_hz / 2, n_fft // 2 + 1)
    slopes = edges[:, None] - bins_hz[None, :]
    widths = np.diff(edges)[:, None]
    weights = np.maximum(0.0, np.minimum(-slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]))
    weights *= 2.0 / (edges[2:] - edges[:-2])[:, None]
    return torch.from_numpy(weights.astype(np.float32))


@lru_cache(maxsize=1)
@torch.inference_mode(False)
def kaldi_filters() -> Tensor:
    """Kaldi's triangles, straight on the mel axis and without area norm: (80, 256) float32, 20 Hz to Nyquist.

    Everything here is float32 on purpose: in near-empty bins the reference's own rounding decides.
    """
    low, high = (1127.0 * math.log(1.0 + hz / 700.0) for hz in (20.0, TOKENIZER_HZ / 2))
    delta = (high - low) / (FBANK_BINS + 1)
    b = torch.arange(FBANK_BINS)[:, None]
    left, center, right = low + b * delta, low + (b + 1.0) * delta, low + (b + 2.0) * delta
    hz = torch.arange(FBANK_N_FFT // 2) * (TOKENIZER_HZ / FBANK_N_FFT)
    mels = (1127.0 * (1.0 + hz / 700.0).log())[None, :]
    return torch.minimum((mels - left) / (center - left), (right - mels) / (right - center)).clamp(min=0.0)


@lru_cache(maxsize=32)
@torch.inference_mode(False)
def _resample_kernel(old: int, new: int) -> tuple[Tensor, int]:
    """((new, 1, 2 * width + old) float32, width): one filter for each output phase."""
    base = RESAMPLE_ROLLOFF * min(old, new)
    width = math.ceil(RESAMPLE_ZEROS * old / base)
    taps = np.arange(-width, width + old)[None, :] / old
    phases = np.arange(new)[:, None] / new
    t = np.clip((taps - phases) * base, -RESAMPLE_ZEROS, RESAMPLE_ZEROS)
    kernel = np.sinc(t) * np.cos(np.pi * t / (2 * RESAMPLE_ZEROS)) ** 2 * base / old
    return torch.from_numpy(kernel.astype(np.float32)).unsqueeze(1), width


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _hann(length: int, device: torch.device) -> Tensor:
    return torch.hann_window(length, periodic=True, device=device)


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _povey(device: torch.device) -> Tensor:
    return torch.hann_window(FBANK_WINDOW, periodic=False).pow(0.85).to(device)  # float32, as the reference rounds it


def _need(wave: Tensor, samples: int, rate_hz: int) -> None:
    if wave.shape[-1] < samples:
        raise ReferenceTooShort(
            f"the clip has {wave.shape[-1] / rate_hz:.3f} s, at least {samples / rate_hz:.3f} s are needed: "
            "record a longer clip (3 to 10 s is best)"
        )
