"""HiFT vocoder, mel -> waveform, with the published key names (v2: symmetric convolutions, linear phase)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

try:
    from tools.demo_model.snake_kernel import snake
except ImportError:
    snake = None
HOP, N_FFT, HARMONICS = 4, 16, 9


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        if snake and x.is_cuda:
            return snake(x, self.alpha)
        a = self.alpha[:, None]
        return x + torch.sin(a * x) ** 2 / (a + 1e-9)


class ResBlock(nn.Module):
    def __init__(self, channels, kernel, dilations=(1, 3, 5)):
        super().__init__()

        def conv(d):
            return weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d, padding=(kernel - 1) * d // 2))

        self.convs1 = nn.ModuleList(conv(d) for d in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x):
        for c1, c2, a1, a2 in zip(self.convs1, self.convs2, self.activations1, self.activations2, strict=True):
            x = x + c2(a2(c1(a1(x))))
        return x


class F0Predictor(nn.Module):
    def __init__(self, channels, mel=80):
        super().__init__()
        mods = []
        for k in range(5):
            mods += [weight_norm(nn.Conv1d(channels if k else mel, channels, 3, padding=1)), nn.ELU()]
        self.condnet = nn.Sequential(*mods)
        self.classifier = nn.Linear(channels, 1)

    def forward(self, x):
        return self.classifier(self.condnet(x).transpose(1, 2))[..., 0].abs()


class Source(nn.Module):
    def __init__(self):
        super().__init__()
        self.l_linear = nn.Linear(HARMONICS, 1)


class HiFT(nn.Module):
    def __init__(self, base=192, f0_channels=192, causal=False, mel=80):
        super().__init__()
        assert not causal
        self.rates, kernels = (8, 5, 3), (16, 11, 7)
        self.m_source = Source()
        self.conv_pre = weight_norm(nn.Conv1d(mel, base, 7, padding=3))
        self.ups, self.source_downs, self.source_resblocks, self.resblocks = (nn.ModuleList() for _ in range(4))
        for i, (u, k) in enumerate(zip(self.rates, kernels, strict=True)):
            a, b = base >> i, base >> (i + 1)
            self.ups.append(weight_norm(nn.ConvTranspose1d(a, b, k, u, (k - u) // 2)))
            s = (15, 3, 1)[i]
            self.source_downs.append(nn.Conv1d(N_FFT + 2, b, 1 if s == 1 else 2 * s, s, padding=s // 2))
            self.source_resblocks.append(ResBlock(b, (7, 7, 11)[i]))
            for kk in (3, 7, 11):
                self.resblocks.append(ResBlock(b, kk))
        self.conv_post = weight_norm(nn.Conv1d(base >> 3, N_FFT + 2, 7, padding=3))
        self.f0_predictor = F0Predictor(f0_channels, mel)
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)

    def source(self, f0: Tensor, noise: Tensor | None = None) -> Tensor:
        """f0 (B, F) Hz -> (B, 480 F)."""
        h = torch.arange(1, HARMONICS + 1, device=f0.device, dtype=f0.dtype)
        turns = torch.cumsum(((f0[..., None] * h / 24000) % 1).double(), 1) * 480
        turns = (F.interpolate(turns.transpose(1, 2), scale_factor=480, mode="linear").transpose(1, 2) % 1).float()
        voiced = (f0 > 10).to(f0.dtype).repeat_interleave(480, 1)[..., None]
        noise = torch.randn(turns.shape, device=f0.device) if noise is None else noise
        e = 0.1 * torch.sin(2 * math.pi * turns) * voiced + (voiced * 0.003 + (1 - voiced) * 0.1 / 3) * noise
        return torch.tanh(self.m_source.l_linear(e))[..., 0]

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel (B, 80, F), source (B, 480 F) -> (B, 480 F)."""
        with torch.autocast(mel.device.type, enabled=False):
            s = torch.stft(source.float(), N_FFT, HOP, N_FFT, self.window, center=True, return_complex=True)
            s = torch.cat([s.real, s.imag], 1)
            x = self.conv_pre(mel)
        for i in range(3):
            x = self.ups[i](F.leaky_relu(x, 0.1))
            if i == 2:
                x = F.pad(x, (1, 0), mode="reflect")
            x = x.float() + self.source_resblocks[i](self.source_downs[i](s).float())
            x = (self.resblocks[3 * i](x) + self.resblocks[3 * i + 1](x) + self.resblocks[3 * i + 2](x)) / 3
        with torch.autocast(mel.device.type, enabled=False):
            x = self.conv_post(F.leaky_relu(x.float(), 0.01))
            mag, ph = torch.exp(x[:, :9].clamp(max=6)).clamp(max=100), torch.sin(x[:, 9:])
            frames = torch.fft.irfft(torch.complex(mag * torch.cos(ph), mag * torch.sin(ph)), N_FFT, 1)
            size = (1, (frames.shape[-1] - 1) * HOP + N_FFT)
            w = self.window[:, None]
            y, envelope = (
                F.fold(v, size, (1, N_FFT), stride=(1, HOP))[:, 0, 0]
                for v in (frames * w, (w * w).expand(1, -1, frames.shape[-1]))
            )
            y = y[:, 8:-8] / envelope[:, 8:-8]
        return y.clamp(-0.99, 0.99)
