"""Reading a prompt and drawing its first id as captured graphs, one for each bucket of lengths.

A replay also brings the row of the decode batch to its start, so that a request is admitted by two copies and one launch.
The prompt is padded on the right: attention is causal, and the padding's keys and values are zeroed before they are stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cosy_engine.accel.buckets import round_up
from cosy_engine.accel.graphs import Captured, Graph, Pool

LENGTHS = (64, 96, 128, 192, 256, 384, 512, 768, 1024)
TEXT, SPEECH, MARK = range(3)
NUMBERS = 5  # length, row, min_tokens, max_tokens, end of the ids that are held back early


class PrefillStep:
    """Static inputs of a bucket of L positions. ids, kinds: (L,) int64, which table each id is of. numbers: see NUMBERS.
    draws: (1, 1, 2), the first pair of uniforms."""

    def __init__(self, plain, state, length: int):
        self.plain, self.lm, self.state, self.length = plain, plain.lm, state, length
        device = self.lm.device
        self.packed = torch.zeros(2 * length + NUMBERS, dtype=torch.int64, device=device)
        self.marks = torch.cat(self.lm.marks())
        self.row_state = self.lm.start(1, 0, 1)

    def __call__(self) -> None:
        lm, state, one, size = self.lm, self.state, self.row_state, self.length
        ids, kinds, numbers = self.packed.split([size, size, NUMBERS])
        length, row, least, most, held = numbers.split(1)
        x = lm.embed_text(ids * (kinds == TEXT))
        x = torch.where((kinds == SPEECH)[:, None], lm.embed_speech(ids * (kinds == SPEECH)), x)
        x = torch.where((kinds == MARK)[:, None], self.marks[ids * (kinds == MARK)], x)
        hidden, new = self.plain.read_prompt(x)
        padding = (torch.arange(size, device=x.device) >= length)[:, None]
        state.cache.both[:, :, :, :, :size].index_copy_(2, row, new.masked_fill_(padding, 0)[:, :, None])
        for tensor, value in (
            (one.step, 0), (one.draw, 0), (one.recent, -1), (one.stop_id, -1), (one.token, 0), (one.done, False),
            (one.finite, True), (one.forbid, False),
        ):  # fmt: skip
            tensor.fill_(value)
        one.min_tokens.copy_(least)
        one.max_tokens.copy_(most)
        one.cache.length.copy_(length)
        vocabulary = torch.arange(lm.spec.head_rows, device=x.device)
        one.forbid_early.copy_(((vocabulary >= lm.spec.speech_tokens) & (vocabulary < held))[None])
        one.uniforms.copy_(state.uniforms.index_select(0, row)[:, :1])
        lm._draw(one, lm.log_probs(lm.backbone.norm(hidden.index_select(0, length - 1))), None)
        for name in (
            "token", "step", "draw", "recent", "min_tokens", "max_tokens", "done", "stop_id", "finite", "forbid", "forbid_early",
        ):  # fmt: skip
            getattr(state, name).index_copy_(0, row, getattr(one, name))
        state.out[:, :1].index_copy_(0, row, one.out)
        state.cache.length.index_copy_(0, row, one.cache.length)


class GraphPrefill:
    """Callable like DecodePool's `prefill`: (row, plan) -> whether it was done. plain: the TorchStep whose weights are used.

    capture_graph: makes a callable of a PrefillStep; Graph on a GPU. pool: shared with what never runs at the same time.
    """

    def __init__(
        self,
        plain,
        state,
        lengths: tuple[int, ...] = LENGTHS,
        capture_graph: Callable = Graph,
        pool: Pool | None = None,
    ):
        self.plain, self.state = plain, state
        self.lengths = tuple(length for length in lengths if length <= state.cache.capacity)
        self._capture_graph, self._pool = capture_graph, pool or Pool()
        self._steps: dict[int, tuple[PrefillStep, Callable]] = {}
        self.replays = 0
        self.captured: list[Captured] = []

    def captures(self) -> Iterator[Callable[[], None]]:
        """One piece of work for each length."""
        for length in self.lengths:
            yield lambda length=length: self.capture(length)

    @torch.inference_mode()
    def capture(self, length: int) -> None:
        """Capture one length; rows that are being decoded are left as they were."""
        cuda = self.plain.lm.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()  # nothing of another stream may still be using the state
        began, before = time.perf_counter(), torch.cuda.memory_reserved() if cuda else 0
        step = PrefillStep(self.plain, self.state, length)
        step.packed[2 * length] = 1
        step.packed[2 * length + 1] = self.state.token.shape[0] - 1
        kept = self._row(-1)
        graph = self._capture_graph(step, self._pool)
        for tensor, old in kept:
            tensor.copy_(old)
        if cuda:
            torch.cuda.synchronize()
        self._steps[length] = step, graph
        taken = torch.cuda.memory_reserved() - before if cuda else 0
        self.captured.append(Captured(f"prefill {length} positions", time.perf_counter() - began, taken))

    def _row(self, row: int) -> list[tuple[Tensor, Tensor]]:
        """All that a prefill of this row writes, with copies: the warm-up of a capture really runs."""
        state = self.state
        tensors = [getattr(state, name)[row] for name in state.__slots__ if name != "cache"]
        tensors += [state.cache.both[:, :, row], state.cache.length[row]]
        return [(tensor, tensor.clone()) for tensor in tensors]

    def __call__(self, row: int, plan) -> bool:
        length = plan.positions - plan.max_tokens
        step, graph = self._steps.get(round_up(length, self.lengths), (None, None))
        if step is None:
            return False
        spec, size = self.plain.spec, step.length
        packed = torch.zeros(2 * size + NUMBERS, dtype=torch.int64, pin_memory=step.packed.is_cuda)
        texts, speech = len(plan.text_ids), len(plan.speech_ids)
        kinds = [MARK] + [TEXT] * texts + [MARK] + [SPEECH] * speech
        packed[1 : 1 + texts] = torch.tensor(plan.text_ids, dtype=torch.int64)
        packed[1 + texts] = 1
        packed[2 + texts : length] = plan.speech_ids.cpu()
        packed[size : size + length] = torch.tensor(kinds)
        held = spec.head_rows if plan.stops_early_forbidden else spec.speech_tokens + 1
        packed[2 * size :] = torch.tensor([length, row, plan.min_tokens, plan.max_tokens, held])
        step.packed.copy_(packed, non_blocking=True)
        self.state.uniforms[row, : len(plan.uniforms)].copy_(torch.from_numpy(plan.uniforms))
        graph()
        self.replays += 1
        return True
