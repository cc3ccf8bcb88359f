"""One Triton kernel for the teacher's most frequent operation on a GPU: instance norm over the valid frames,
style scale and shift, an activation, and zeros after the end. The plain PyTorch form needs some seventeen passes over
memory, this one about two. teacher.py uses it when Triton and a CUDA device are there."""

import torch
import triton
import triton.language as tl


@triton.jit
def _adain_act(X, Y, G, S, A, N, C, T, ACT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.load(N + row // C)
    x0 = X + row * T
    y0 = Y + row * T
    o = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for k in range(0, n, BLOCK):
        acc += tl.load(x0 + k + o, mask=k + o < n, other=0.0).to(tl.float32)
    mu = tl.sum(acc, 0) / n
    acc = tl.zeros([BLOCK], tl.float32)
    for k in range(0, n, BLOCK):
        d = tl.where(k + o < n, tl.load(x0 + k + o, mask=k + o < n, other=0.0).to(tl.float32) - mu, 0.0)
        acc += d * d
    g = (1.0 + tl.load(G + row)) / tl.sqrt(tl.sum(acc, 0) / n + 1e-5)
    s = tl.load(S + row) - mu * g
    a = tl.load(A + row % C)
    for k in range(0, T, BLOCK):
        m = k + o < n
        y = tl.load(x0 + k + o, mask=m, other=0.0).to(tl.float32) * g + s
        if ACT == 1:
            y = tl.where(y > 0, y, 0.2 * y)
        if ACT == 2:
            w = tl.sin(a * y)
            y += w * w / a
        tl.store(y0 + k + o, tl.where(m, y, 0.0).to(Y.dtype.element_ty), mask=k + o < T)


def adain_act(x, gain, shift, n, act, alpha=None, out_dtype=None):
    """x [B,C,T]; gain, shift [B,C]; n [B] valid frames; act 0 none, 1 leaky ReLU 0.2, 2 snake with alpha (C values)"""
    x = x.contiguous()
    B, C, T = x.shape
    y = torch.empty(x.shape, dtype=out_dtype or x.dtype, device=x.device)
    gain, shift = gain.float().contiguous(), shift.float().contiguous()
    _adain_act[(B * C,)](x, y, gain, shift, gain if alpha is None else alpha.reshape(-1), n, C, T, ACT=act, BLOCK=2048)
    return y
