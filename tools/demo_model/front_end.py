"""The two front-end networks of the demo voice: speech tokenizer (with its training-only tail) and speaker encoder.

They leave the repository as ONNX files with the published inputs and outputs (export.py), so the engine needs no class
of theirs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS = 8  # finite scalar quantisation to {-1, 0, 1} in each: 3 ** 8 = 6561 codes
CODES = 3**DIGITS
EMBEDDING_WIDTH = 192


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding over the last axis, halves paired."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    """Attention over a window, convolution, feed-forward, all pre-norm."""

    def __init__(self, width, heads, ffn, kernel=9):
        super().__init__()
        self.heads = heads
        self.n1, self.n2, self.n3, self.n4 = (nn.LayerNorm(width) for _ in range(4))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.pw1, self.pw2 = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.dw = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.f1, self.f2 = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x: Tensor, keep: Tensor, bias: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, T, D); keep (B, T, 1) of 0 and 1; bias (B, 1, T, T) additive."""
        batch, frames, width = x.shape
        qkv = self.qkv(self.n1(x)).view(batch, frames, 3 * self.heads, width // self.heads)
        q, k, v = qkv.transpose(1, 2).chunk(3, 1)
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, attn_mask=bias)
        x = x + self.out(a.transpose(1, 2).reshape(batch, frames, width))
        h = F.glu(self.pw1(self.n2(x)), -1) * keep
        h = self.dw(h.transpose(1, 2)).transpose(1, 2)
        x = x + self.pw2(F.silu(self.n3(h)))
        return x + self.f2(F.silu(self.f1(self.n4(x))))


def context(n: Tensor, frames: int, window: int, head: int, like: Tensor):
    """Keep mask, additive attention bias and rotary tables for `frames` frames of which n (B,) are valid."""
    pos = torch.arange(frames, device=like.device)
    valid = pos[None] < n[:, None]
    near = (pos[None] - pos[:, None]).abs() <= window
    seen = (valid[:, None] & near[None]) | (pos[None] == pos[:, None])[None]
    bias = torch.where(seen, 0.0, -1e4)[:, None]
    freq = 1e4 ** (-torch.arange(0, head, 2, device=like.device, dtype=torch.float32) / head)
    angle = pos.float()[:, None] * freq[None]
    return valid[..., None].to(like.dtype), bias, torch.cos(angle), torch.sin(angle)


def valid_frames(x: Tensor, n: Tensor) -> Tensor:
    """(B, C, T) with zeros from frame n (B,) on."""
    return x * (torch.arange(x.shape[-1], device=x.device)[None] < n[:, None])[:, None].to(x.dtype)


class Tokenizer(nn.Module):
    """Log-mel (B, 128, T) at 100 Hz and lengths (B,) -> codes at 25 Hz.

    Attention reaches `window` frames each way, so a code depends on about five seconds around it and clips may be
    longer than those of training.
    """

    def __init__(self, width=192, layers=4, heads=4, ffn=768, window=32):
        super().__init__()
        self.window, self.head = window, width // heads
        self.c1, self.c2 = nn.Conv1d(128, width, 3, 2, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.blocks = nn.ModuleList(Block(width, heads, ffn) for _ in range(layers))
        self.norm, self.down = nn.LayerNorm(width), nn.Linear(width, DIGITS)

    def encode(self, feats: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        """Digits before rounding, in (-1, 1): (B, T', 8), and the valid lengths (B,)."""
        x = F.gelu(self.c1(valid_frames(feats, n)))
        n = (n + 1) // 2
        x = F.gelu(self.c2(valid_frames(x, n)))
        n = (n + 1) // 2
        x = x.transpose(1, 2)
        ctx = context(n, x.shape[1], self.window, self.head, x)
        for block in self.blocks:
            x = block(x, *ctx)
        return torch.tanh(self.down(self.norm(x)).float()), n

    @staticmethod
    def codes(digits: Tensor) -> Tensor:
        """(..., 8) -> (...) int32."""
        return ((torch.round(digits) + 1) * (3.0 ** torch.arange(DIGITS, device=digits.device))).sum(-1).to(torch.int32)

    def forward(self, feats: Tensor, feats_length: Tensor) -> Tensor:
        return self.codes(self.encode(feats, feats_length)[0])


def digits(codes: Tensor) -> Tensor:
    """(...) codes -> (..., 8) their digits in {-1, 0, 1}."""
    return ((codes[..., None].long() // (3 ** torch.arange(DIGITS, device=codes.device))) % 3 - 1).float()


class Tail(nn.Module):
    """Training only: reads the rounded digits. Phonemes (frame and CTC), pitch, energy; mel with the voice given."""

    def __init__(self, phones, voice, width=192, heads=4, ffn=768, window=32):
        super().__init__()
        self.window, self.head = window, width // heads
        self.up = nn.Linear(DIGITS, width)
        self.blocks = nn.ModuleList(Block(width, heads, ffn) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.phone, self.ctc, self.pitch = nn.Linear(width, phones), nn.Linear(width, phones), nn.Linear(width, 3)
        self.spk, self.mel_block = nn.Linear(voice, width), Block(width, heads, ffn)
        self.mel_norm, self.mel = nn.LayerNorm(width), nn.Linear(width, 160)

    def forward(self, q: Tensor, n: Tensor, voice: Tensor | None = None) -> dict[str, Tensor]:
        """q (B, T, 8), n (B,), voice (B, V) -> logits (B, T, phones) and, with a voice, mel (B, 2 T, 80)."""
        x = self.up(q)
        ctx = context(n, x.shape[1], self.window, self.head, x)
        for block in self.blocks:
            x = block(x, *ctx)
        y = self.norm(x)
        out = {"phone": self.phone(y), "ctc": self.ctc(y), "pitch": self.pitch(y)}
        if voice is not None:
            z = self.mel_block(x + self.spk(voice)[:, None], *ctx)
            out["mel"] = self.mel(self.mel_norm(z)).view(x.shape[0], 2 * x.shape[1], 80)
        return out


class Res2(nn.Module):
    """Dilated convolutions over channel groups, each fed with the one before, with squeeze-excitation."""

    def __init__(self, width, dilation, scale=6):
        super().__init__()
        w = width // scale
        self.a = nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.BatchNorm1d(width))
        self.b = nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.BatchNorm1d(width))
        self.c = nn.ModuleList(
            nn.Sequential(nn.Conv1d(w, w, 3, padding=dilation, dilation=dilation), nn.ReLU(), nn.BatchNorm1d(w))
            for _ in range(scale - 1)
        )
        self.s1, self.s2 = nn.Linear(width, width // 3), nn.Linear(width // 3, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.a(x).chunk(len(self.c) + 1, 1)
        out, h = [parts[0]], None
        for conv, part in zip(self.c, parts[1:], strict=True):
            h = conv(part if h is None else part + h)
            out.append(h)
        y = self.b(torch.cat(out, 1))
        gate = torch.sigmoid(self.s2(F.relu(self.s1(y.mean(-1)))))
        return x + y * gate[..., None]


class SpeakerEncoder(nn.Module):
    """Kaldi fbank (B, T, 80) with its mean over time removed -> (B, 192)."""

    def __init__(self, width=192, wide=384, out=EMBEDDING_WIDTH):
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(80, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width))
        self.blocks = nn.ModuleList(Res2(width, k) for k in (2, 3, 4))
        self.join = nn.Sequential(nn.Conv1d(3 * width, wide, 1), nn.ReLU())
        self.att1, self.att2 = nn.Conv1d(3 * wide, 96, 1), nn.Conv1d(96, wide, 1)
        self.bn1, self.out, self.bn2 = nn.BatchNorm1d(2 * wide), nn.Linear(2 * wide, out), nn.BatchNorm1d(out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.transpose(1, 2))
        each = []
        for block in self.blocks:
            x = block(x)
            each.append(x)
        x = self.join(torch.cat(each, 1))
        mean = x.mean(-1, keepdim=True)
        spread = torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
        a = torch.tanh(self.att1(torch.cat([x, mean.expand_as(x), spread.expand_as(x)], 1)))
        a = torch.softmax(self.att2(a), -1)
        m = (a * x).sum(-1)
        s = torch.sqrt((a * (x - m[..., None]) ** 2).sum(-1) + 1e-5)
        return self.bn2(self.out(self.bn1(torch.cat([m, s], 1))))
