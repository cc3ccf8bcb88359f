"""Windows of fixed size against the vocoder itself; on the CPU the captured window is simply computed again."""

import pytest
import torch

from cosy_engine.accel.vocoder_graph import Edges, GraphVocoder, next_window
from tests.accel.interpreter import interpreted, run_interpreted
from tests.vocoder.models import TINY, stream, tiny_mel, tiny_vocoder

ROUNDING = 5e-5  # fp32 sums in another order; waves lie in +-1
SIZES = (48, 64, 96, 128, 192)

versions = pytest.mark.parametrize("version", TINY)


def fast(vocoder, sizes=SIZES):
    ours = GraphVocoder(vocoder, sizes, capture_graph=lambda step, share: step)
    for chore in ours.captures():
        chore()
    return ours


@versions
def test_windows_do_not_change_the_sound(version):
    ours = fast(tiny_vocoder(version))
    for frames in (48, 97, 150, 192, 431):
        mel = tiny_mel(frames)
        expected, before = tiny_vocoder(version).whole(mel, seed=4), ours.replays
        torch.testing.assert_close(ours.whole(mel, seed=4), expected, atol=ROUNDING, rtol=0)
        assert ours.replays > before


@versions
def test_a_stream_of_windows_does_not_change_the_sound(version):
    ours, mel = fast(tiny_vocoder(version)), tiny_mel(260)
    expected = tiny_vocoder(version).whole(mel, seed=4)
    for pieces in ([1] * 200, [50, 50, 100], [3, 1, 40, 0, 2, 131, 1], [260], [76, 144], []):
        torch.testing.assert_close(stream(ours, mel, pieces, seed=4), expected, atol=ROUNDING, rtol=0)


@versions
@pytest.mark.parametrize("frames", (0, 1, 9, 22, 47, 60, 90))
def test_what_is_too_short_for_windows_ends_well(version, frames):
    ours, mel = fast(tiny_vocoder(version)), tiny_mel(frames)
    expected = tiny_vocoder(version).whole(mel, seed=4)
    for pieces in ([], [1] * frames, [frames]):
        torch.testing.assert_close(stream(ours, mel, pieces, seed=4), expected, atol=ROUNDING, rtol=0)
    torch.testing.assert_close(ours.whole(mel, seed=4), expected, atol=ROUNDING, rtol=0)


@versions
def test_windows_give_no_less_than_the_plain_stream(version):
    vocoder = tiny_vocoder(version)
    ours, state, plain = fast(vocoder), None, vocoder.start()
    state = ours.start()
    given = [0, 0]
    for count in (10, 40, 50, 50, 3, 100):
        given[0] += len(ours.advance(state, tiny_mel(count)))
        given[1] += len(vocoder.advance(plain, tiny_mel(count)))
        assert given[0] >= given[1]


@versions
def test_a_stream_keeps_no_more_than_its_longest_window(version):
    ours = fast(tiny_vocoder(version))
    state = ours.start()
    for _ in range(12):
        ours.advance(state, tiny_mel(50))
        assert state.mel.shape[1] <= SIZES[-1] and state.sums.shape[1] <= SIZES[-1]
        assert version == "v3" or len(state.drawn.kept) <= 24000 + 480 * SIZES[-1]


@versions
@pytest.mark.parametrize("early", [(), (48,), (48, 96), (192,)])
def test_a_stream_keeps_to_the_sizes_that_were_there_when_it_began(version, early):
    vocoder, mel = tiny_vocoder(version), tiny_mel(420)
    ours = GraphVocoder(vocoder, SIZES, capture_graph=lambda step, share: step)
    for frames in early:
        ours.capture(frames)
    state = ours.start(seed=1)
    parts = [ours.advance(state, mel[:, :170])]
    for frames in SIZES:
        ours.capture(frames)
    parts.append(ours.advance(state, mel[:, 170:390]))
    parts.append(ours.advance(state, mel[:, 390:], final=True))
    torch.testing.assert_close(torch.cat(parts), vocoder.whole(mel, seed=1), atol=ROUNDING, rtol=0)
    assert (ours.replays > 0) == bool(early)


@versions
@pytest.mark.parametrize("sizes", [(48,), (192,), (64, 128)])
def test_sizes_that_could_not_be_captured_are_done_without(version, sizes):
    vocoder = tiny_vocoder(version)
    ours = GraphVocoder(vocoder, SIZES, capture_graph=lambda step, share: step)
    for frames in sizes:
        ours.capture(frames)
    for frames in (30, 100, 300):
        mel = tiny_mel(frames)
        torch.testing.assert_close(ours.whole(mel, seed=1), vocoder.whole(mel, seed=1), atol=ROUNDING, rtol=0)
        pieces = [17, 40, 25, 60][: frames // 60]
        torch.testing.assert_close(stream(ours, mel, pieces, seed=1), vocoder.whole(mel, seed=1), atol=ROUNDING, rtol=0)
    assert ours.replays > 0


@versions
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_what_the_plain_vocoder_gives_in_it(version, dtype):
    mel = tiny_mel(130)
    plain = tiny_vocoder(version).set_precision(dtype).whole(mel, seed=4)
    ours = fast(tiny_vocoder(version).set_precision(dtype)).whole(mel, seed=4)
    # both round at the same places, but a sum in another order may round to the neighbour
    assert (ours - plain).square().mean().sqrt() < (0.03 if dtype == torch.bfloat16 else 0.005) * plain.std()


@versions
def test_every_frame_is_made_final_once_and_windows_reach_far_enough(version):
    edges = Edges.of(version == "v3")
    for total in range(96, 700, 7):
        emitted = 0
        for arrived, final in ((total // 3, False), (total // 2, False), (total, True)):
            while emitted < arrived and (w := next_window(emitted, arrived, final, SIZES, edges)):
                assert w.first == 0 or w.first + edges.left <= emitted
                assert w.ready <= w.first + w.frames - edges.right or (
                    final and w.first + w.frames == arrived == w.ready
                )
                assert w.ready > emitted
                emitted = w.ready
        assert emitted == total


@interpreted
def test_kernels_under_the_interpreter():
    run_interpreted("vocoder_interpreted.py")
