"""What a user's clip went through that the teacher's did not: room, microphone, telephone, noise, other vocal tracts."""

import math

import torch
from torch import Tensor

ROOM_SAMPLES = 8000


def channel(wave: Tensor, lengths: Tensor | None = None, share: float = 0.85) -> Tensor:
    """Rooms, equaliser, band limits, noise, other voices, level and 8-bit mu-law; nothing moves in time.

    Args: wave: (B, N) at 16 kHz. lengths: (B,) valid samples, for the noise level. share: rows that are changed.
    """
    batch, n = wave.shape
    device = wave.device

    def rand(low=0.0, high=1.0):
        return torch.rand(batch, 1, device=device) * (high - low) + low

    def pick(p):
        return torch.rand(batch, 1, device=device) < p

    size = 1 << (n + ROOM_SAMPLES - 1).bit_length()
    if size * 3 // 4 >= n + ROOM_SAMPLES:
        size = size * 3 // 4
    hz = torch.linspace(0, 8000, size // 2 + 1, device=device)[None]
    # room: the direct sound and an exponentially decaying tail
    t = torch.arange(ROOM_SAMPLES, device=device)[None] / 16000
    room = torch.randn(batch, ROOM_SAMPLES, device=device) * torch.exp(-6.9 * t / rand(0.1, 0.6))
    room = room * (t > rand(0.002, 0.02))
    room = room * torch.rsqrt((room * room).sum(1, keepdim=True) + 1e-9) * 10 ** (-rand(-2, 15) / 20) * pick(0.5)
    room[:, 0] = 1
    response = torch.fft.rfft(room, size)
    # three-band equaliser, low-pass, high-pass
    db = (torch.rand(batch, 4, device=device) * 2 - 1) * 7 * pick(0.6)
    knots = (torch.log1p(hz / 300) / math.log1p(8000 / 300) * 3).clamp(max=2.9999)
    k = knots.long().expand(batch, -1)
    w = knots - k
    response = response * 10 ** ((torch.gather(db, 1, k) * (1 - w) + torch.gather(db, 1, k + 1) * w) / 20)
    low_pass = torch.where(pick(0.25), rand(3000, 7500), 20000.0)
    high_pass = torch.where(pick(0.2), rand(60, 350), -1000.0)
    response = response * torch.sigmoid((low_pass - hz) / 120) * torch.sigmoid((hz - high_pass) / 20)
    y = torch.fft.irfft(torch.fft.rfft(wave, size) * response, size)[:, :n]
    power = (y * y).sum(1, keepdim=True) / (n if lengths is None else lengths[:, None]) + 1e-9
    noise = torch.randn(batch, n, device=device)
    noise = torch.fft.irfft(torch.fft.rfft(noise, size) * (hz + 60) ** (-rand(0, 1)), size)[:, :n]
    noise = noise * torch.rsqrt((noise * noise).mean(1, keepdim=True) + 1e-12)
    y = y + noise * torch.sqrt(power) * 10 ** (-rand(5, 40) / 20) * pick(0.8)
    other = torch.sqrt(power / power.roll(1, 0)) * y.roll(1, 0)
    y = y + other * 10 ** (-rand(12, 30) / 20) * pick(0.1)
    y = (y * 10 ** (rand(-22, 4) / 20)).clamp(-1, 1)
    mu = torch.sign(y) * torch.log1p(255 * y.abs()) / math.log(256)
    mu = torch.round(mu * 127) / 127
    y = torch.where(pick(0.1), torch.sign(mu) * (256 ** mu.abs() - 1) / 255, y)
    return torch.where(pick(share), y, wave)


def _mel_to_hz(mel: Tensor) -> Tensor:
    return torch.where(mel < 15, mel * 200 / 3, 1000 * torch.exp((mel - 15) * math.log(6.4) / 27))


def _hz_to_mel(hz: Tensor) -> Tensor:
    return torch.where(hz < 1000, hz * 3 / 200, 15 + torch.log(hz.clamp(min=1) / 1000) * 27 / math.log(6.4))


def spectrum(log_mel: Tensor, stretch: float = 0.12) -> Tensor:
    """Another vocal tract (the frequency axis by up to exp(+-stretch), half of the rows), and small holes.

    Args: log_mel: (B, 128, T) of the speech tokenizer. Timing stays.
    """
    batch, bins, frames = log_mel.shape
    device = log_mel.device

    def rand(*shape):
        return torch.rand(batch, *shape, device=device)

    step = _hz_to_mel(torch.tensor(8000.0, device=device)) / (bins + 1)
    hz = _mel_to_hz((torch.arange(bins, device=device) + 1) * step)[None]
    factor = torch.exp((rand(1) * 2 - 1) * stretch * (rand(1) < 0.5))
    bin_at = (_hz_to_mel(hz * factor) / step - 1).clamp(0, bins - 1.001)
    low = bin_at.long()
    w = (bin_at - low)[..., None]
    low = low[..., None].expand(-1, -1, frames)
    y = torch.gather(log_mel, 1, low) * (1 - w) + torch.gather(log_mel, 1, low + 1) * w
    fill = y.mean((1, 2), keepdim=True)
    for axis, size, widest in ((1, bins, 12), (1, bins, 12), (2, frames, 8), (2, frames, 8)):
        start, width = rand(1) * size, rand(1) * widest * (rand(1) < 0.4)
        k = torch.arange(size, device=device)[None]
        hole = (k >= start) & (k < start + width)
        y = torch.where(hole.unsqueeze(2 if axis == 1 else 1), fill, y)
    return y
