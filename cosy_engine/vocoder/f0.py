"""Pitch of each mel frame."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.settings.model_spec import HiftSpec
from cosy_engine.vocoder.layers import Conv

LOOKAHEAD = 3  # frames that the causal predictor's first convolution looks ahead (kernel 4)


class F0Predictor(nn.Module):
    """Five convolutions and a linear layer; works in the dtype of its weights.

    Inference runs it in fp64, as v3 was published to: the source integrates f0, so one ulp of f0 moves the phase of
    every later sample, and an f0 that depends on how many frames were convolved together would be heard as a seam.
    v2 was published in fp32; its samples are reproducible only to 3e-3 for that reason, and fp64 stays within.
    """

    def __init__(self, spec: HiftSpec):
        super().__init__()
        self.causal = spec.causal
        width = spec.f0_channels
        first = Conv(spec.mel_bins, width, LOOKAHEAD + 1 if spec.causal else 3, pad=(0, 0) if spec.causal else (1, 1))
        pad = (2, 0) if spec.causal else (1, 1)
        self.condnet = nn.ModuleDict({"0": first, **{str(2 * i): Conv(width, width, 3, pad=pad) for i in range(1, 5)}})
        self.classifier = nn.Linear(width, 1)

    def forward(self, mel: Tensor, *, finalize: bool = True) -> Tensor:
        """(B, M, F) -> (B, F) Hz fp32; the causal one gives F - 3 frames when more will come (finalize=False)."""
        x = mel.to(self.classifier.weight.dtype)
        if self.causal and finalize:
            x = F.pad(x, (0, LOOKAHEAD))
        for conv in self.condnet.values():
            x = F.elu(conv(x))
        return self.classifier(x.transpose(1, 2))[..., 0].abs().float()
