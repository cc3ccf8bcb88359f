"""The decode batch: requests take a row, are decoded together, and leave, between any two steps.

The host never waits for a single token. A launch runs some steps for all rows; the results come back in one copy that
is read while later launches run, so that the device always has work.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cosy_engine.llm.speech_lm import DecodeState, Progress, SpeechLM, first_rows

CONTEXT_STEP = 64  # attention looks at a multiple of this many positions: few shapes, little masked work

Step = Callable[[DecodeState, int, int], None]  # (state, rows, context): one decode step over the first rows


@dataclass(frozen=True, eq=False)
class RowPlan:
    """How a row is to be decoded.

    text_ids: prompt text ++ text. speech_ids: (P,) reference tokens, on the CPU. uniforms: (n, 2) float32 draws, n >= max_tokens.
    stops_early_forbidden: every stop id is held back before min_tokens (else one id only, as upstream does).
    """

    text_ids: list[int]
    speech_ids: Tensor
    uniforms: np.ndarray
    min_tokens: int
    max_tokens: int
    stops_early_forbidden: bool = True

    @property
    def positions(self) -> int:
        """Cached positions that the row can reach: sos, task and all ids."""
        return 2 + len(self.text_ids) + len(self.speech_ids) + self.max_tokens


@dataclass(slots=True)
class _Row:
    """Host's view of a row. reached: upper bound of its positions. tokens: ids read so far. done: as last read."""

    reached: int
    tokens: list[int]
    done: bool = False


@dataclass(frozen=True, eq=False)
class _Sent:
    """A launch under way. rows: who was decoded. packed: see DecodePool._packed."""

    rows: dict[int, _Row]
    packed: Tensor
    event: torch.cuda.Event | None


class DecodePool:
    """Up to `rows` rows of at most `positions` cached positions and `draws` ids each; belongs to one thread.

    step: what decodes; None is the model's own eager step. steps: decode steps per launch. ahead: launches that stay under way
    when results are read. prefill: (row, plan) -> whether it brought the row to its start and drew its first id; None leaves that
    to the model.
    """

    def __init__(
        self,
        lm: SpeechLM,
        rows: int,
        positions: int,
        draws: int,
        *,
        steps: int = 1,
        ahead: int = 0,
        step: Step | None = None,
    ):
        self.lm, self.positions, self.draws, self.steps = lm, positions, draws, steps
        self.step = step or self._eager
        self.prefill: Callable[[int, RowPlan], bool] | None = None
        cuda = lm.device.type == "cuda"
        self._stream = torch.cuda.Stream(lm.device) if cuda else None
        self._reading = torch.cuda.Stream(lm.device) if cuda else None  # results travel while the next steps run
        with torch.inference_mode(), self._on_stream():
            self.state = lm.start(rows, positions, draws)
            self.state.done.fill_(True)
        self._free = list(range(rows))
        self._rows: dict[int, _Row] = {}
        self._sent: deque[_Sent] = deque(maxlen=1 + ahead)  # what nobody reads is overtaken

    @property
    def active(self) -> int:
        """Rows in use."""
        return len(self._rows)

    def fits(self, plan: RowPlan) -> bool:
        """Whether a row has room for the plan."""
        return plan.positions <= self.positions and plan.max_tokens <= self.draws

    @torch.inference_mode()
    def admit(self, plan: RowPlan) -> int | None:
        """Prefill a free row and draw its first id; None when all rows are taken."""
        if not self._free:
            return None
        row = heapq.heappop(self._free)
        self._rows[row] = _Row(plan.positions - plan.max_tokens, [])
        try:
            with self._on_stream():
                if not (self.prefill and self.prefill(row, plan)):
                    self._prepare(row, plan)
                    inputs = self.lm.prompt(plan.text_ids, plan.speech_ids)
                    self.lm.prefill(self.state, row, inputs, context=len(inputs))
        except BaseException:
            self.release(row)
            raise
        return row

    def _prepare(self, row: int, plan: RowPlan) -> None:
        """All of a row's tensors to their start values."""
        state, spec = self.state, self.lm.spec
        for tensor, value in (
            (state.cache.length, 0),
            (state.token, 0),
            (state.step, 0),
            (state.draw, 0),
            (state.recent, -1),
            (state.stop_id, -1),
            (state.done, False),
            (state.finite, True),
            (state.forbid, False),
            (state.forbid_early, False),
            (state.min_tokens, plan.min_tokens),
            (state.max_tokens, plan.max_tokens),
        ):
            tensor[row].fill_(value)
        state.uniforms[row, : len(plan.uniforms)].copy_(torch.from_numpy(plan.uniforms))
        last = spec.head_rows if plan.stops_early_forbidden else spec.speech_tokens + 1
        state.forbid_early[row, spec.speech_tokens : last].fill_(True)

    @torch.inference_mode()
    def release(self, row: int) -> None:
        """Free a row at once; what was decoded for it is forgotten."""
        reached = self._rows.pop(row).reached
        try:
            with self._on_stream():
                self.state.done[row].fill_(True)
                # Non-finite leftovers would reach the next owner through weights of exactly zero.
                self.state.cache.both[:, :, row, :, : reached + 1].zero_()
        finally:
            heapq.heappush(self._free, row)

    @torch.inference_mode()
    def launch(self) -> None:
        """Send some decode steps for all rows, and the copy of their results. Nothing is sent for rows that have all ended."""
        if all(row.done for row in self._rows.values()):
            return
        rows = max(self._rows) + 1
        with self._on_stream():
            for _ in range(self.steps):
                for row in self._rows.values():
                    row.reached += 1
                needed = max(row.reached for row in self._rows.values()) + 1
                context = min(self.state.cache.capacity, -(-needed // CONTEXT_STEP) * CONTEXT_STEP)
                self.step(self.state, rows, context)
            self._sent.append(_Sent(dict(self._rows), *self._packed(rows)))

    def _packed(self, rows: int) -> tuple[Tensor, torch.cuda.Event | None]:
        """(rows, 4 + draws) on the host once the event has happened: step, done, stop id, finite, ids."""
        state = self.state
        head = torch.stack([state.step, state.done.long(), state.stop_id, state.finite.long()], dim=1)
        packed = torch.cat([head[:rows], state.out[:rows]], dim=1)
        if self._stream is None:
            return packed, None
        host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        self._reading.wait_stream(self._stream)
        with torch.cuda.stream(self._reading):
            host.copy_(packed, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        packed.record_stream(self._reading)
        return host, event

    def collect(self) -> dict[int, Progress]:
        """Results by row of the launch that is `ahead` before the last; waits for them if they are not there yet.

        Nothing is read while fewer are under way, unless none is to follow.
        """
        more = not all(row.done for row in self._rows.values())
        if not self._sent or (more and len(self._sent) < self._sent.maxlen):
            return {}
        sent = self._sent.popleft()
        if sent.event is not None:
            sent.event.synchronize()
        results = {}
        for index, row in sent.rows.items():
            if self._rows.get(index) is not row:  # left since, or the row has a new owner
                continue
            count, done, stop_id, finite = sent.packed[index, :4].tolist()
            row.tokens += sent.packed[index, 4 + len(row.tokens) : 4 + count].tolist()
            row.done = bool(done)
            results[index] = Progress(row.tokens, row.done, stop_id, bool(finite))
        return results

    def _on_stream(self):
        return torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext()

    def _eager(self, state: DecodeState, rows: int, context: int) -> None:
        self.lm.decode_step(first_rows(state, rows), context=context)
