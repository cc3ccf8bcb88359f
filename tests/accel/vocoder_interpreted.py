"""The vocoder's kernels on the CPU: run by test_vocoder_graph.py in a process of its own, with TRITON_INTERPRET=1."""

import pytest
import torch

from cosy_engine.accel.vocoder_graph import GraphVocoder
from cosy_engine.accel.vocoder_kernels import VocoderKernels
from cosy_engine.accel.vocoder_lean import Part, PlainOps
from tests.vocoder.models import TINY, tiny_mel, tiny_vocoder

KERNELS = VocoderKernels(block=16384)  # the interpreter's time is the number of programs


@pytest.mark.parametrize("version", TINY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels_give_what_plain_torch_gives(version, dtype):
    vocoder, mel = tiny_vocoder(version).set_precision(dtype), tiny_mel(70)
    waves = []
    for ops in (PlainOps(), KERNELS):
        ours = GraphVocoder(vocoder, (48,), capture_graph=lambda step, share: step, ops=ops)
        ours.capture(48)
        state = ours.start(seed=1)
        waves.append(ours.advance(state, mel))
        assert ours.replays > 0
    # fp32: sines of another library; fp16: such a difference may round to the neighbour
    assert (waves[0] - waves[1]).square().mean().sqrt() < (1e-4 if dtype == torch.float32 else 5e-3) * waves[0].std()


def test_what_left_fp16_is_bounded():
    x, zero, one = torch.full((1, 4, 8), torch.inf).half(), torch.zeros(1, 4, 8), torch.ones(8)
    total, active = KERNELS.add_snake(Part(zero), Part(x), one, torch.float32)
    assert (total.value == 65504).all() and active.isfinite().all()
    assert KERNELS.snake(Part(-x), one, torch.float32).isfinite().all()


def test_a_bias_that_was_left_to_the_reader_is_added_by_channel():
    x, d, bias, alpha = torch.randn(1, 5, 8), torch.randn(1, 5, 8), torch.randn(8), torch.rand(8) + 0.5
    ours = KERNELS.add_snake(Part(x, bias), Part(d, -2 * bias), alpha, torch.float32)
    plain = PlainOps().add_snake(Part(x + bias), Part(d - 2 * bias), alpha, torch.float32)
    torch.testing.assert_close(ours[0].value, plain[0].value, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours[1], plain[1], atol=1e-6, rtol=0)
