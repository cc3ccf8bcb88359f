"""Text tokens to speech tokens: prefill, decode steps and the state of the rows being decoded.

All that changes per step lives in `DecodeState` tensors, so a step makes no decision on the host and can be captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cosy_engine.llm.backbone import Backbone, matmul
from cosy_engine.llm.kv_cache import KVCache
from cosy_engine.llm.sampling import repetition_aware
from cosy_engine.settings.model_spec import LlmSpec


@dataclass(slots=True)
class DecodeState:
    """What B rows remember between steps; all tensors on the device.

    token: (B,) id fed next. step: (B,) ids emitted. recent: (B, window). uniforms: (B, cap, 2), one pair per draw;
    draw: (B,) how many pairs are used. min_tokens, max_tokens: (B,). done: (B,) bool. stop_id: (B,) the id that ended
    the row, -1 when none. finite: (B,) bool, False once logits were not. out: (B, cap) emitted ids.
    forbid: (B, V) ids never drawn. forbid_early: (B, V) ids not drawn before min_tokens.
    """

    cache: KVCache
    token: Tensor
    step: Tensor
    draw: Tensor
    recent: Tensor
    uniforms: Tensor
    min_tokens: Tensor
    max_tokens: Tensor
    done: Tensor
    stop_id: Tensor
    finite: Tensor
    out: Tensor
    forbid: Tensor
    forbid_early: Tensor


@dataclass(frozen=True)
class Progress:
    """One row as the host sees it. tokens: all ids emitted so far."""

    tokens: list[int]
    done: bool
    stop_id: int
    finite: bool


Sampler = Callable[[Tensor, DecodeState], Tensor]  # masked log-probs (B, V), state -> ids (B,)


class SpeechLM(nn.Module):
    """Qwen2 body with a speech embedding and a speech head; the body's own text head is never built.

    Published names map onto ours by `llm.model.model.` -> `backbone.`; `llm.model.lm_head.weight` is dropped.
    """

    def __init__(self, spec: LlmSpec):
        super().__init__()
        self.spec = spec
        self.backbone = Backbone(spec)
        if spec.separate_prompt_table:
            self.llm_embedding = nn.Embedding(2, spec.width)
        self.speech_embedding = nn.Embedding(spec.head_rows, spec.width)
        self.llm_decoder = nn.Linear(spec.width, spec.head_rows, bias=spec.head_bias)

    @property
    def device(self) -> torch.device:
        return self.llm_decoder.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.llm_decoder.weight.dtype

    def set_precision(self, dtype: torch.dtype) -> SpeechLM:
        """Matrix weights and embeddings to `dtype`; norms stay fp32."""
        for layer in self.backbone.layers:
            layer.mlp.set_precision(dtype)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                module.to(dtype)
        return self

    # Embeddings, fp32

    def embed_text(self, ids: Tensor) -> Tensor:
        """(L,) text ids -> (L, D)."""
        return self.backbone.embed_tokens(ids).float()

    def embed_speech(self, ids: Tensor) -> Tensor:
        """(T,) speech ids -> (T, D)."""
        return self.speech_embedding(ids).float()

    def marks(self) -> tuple[Tensor, Tensor]:
        """The sos and task vectors, (1, D) each."""
        table = self.llm_embedding if self.spec.separate_prompt_table else self.speech_embedding
        both = table.weight[[self.spec.sos_row, self.spec.task_row]].float()
        return both[:1], both[1:]

    def prompt(self, text_ids: list[int], speech_ids: Tensor) -> Tensor:
        """[sos, text (prompt text ++ text), task, speech tokens of the reference] -> (L, D)."""
        sos, task = self.marks()
        text = torch.tensor(text_ids, dtype=torch.int64, device=self.device)
        return torch.cat([sos, self.embed_text(text), task, self.embed_speech(speech_ids.to(self.device))])

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(..., D) after the final norm -> (..., V) fp32 log-probabilities."""
        return torch.log_softmax(matmul(hidden, self.llm_decoder), dim=-1)

    # Decoding

    def start(self, rows: int, positions: int, draws: int) -> DecodeState:
        """Empty state for `rows` rows of at most `positions` cached positions and `draws` sampled ids each."""
        device, spec = self.device, self.spec

        def full(value: int | bool, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full(shape, value, dtype=dtype, device=device)

        # One spare position: a row that has ended keeps writing there.
        cache = KVCache.allocate(spec, rows, positions + 1, device, self.dtype)
        return DecodeState(
            cache=cache,
            token=full(0, rows),
            step=full(0, rows),
            draw=full(0, rows),
            recent=full(-1, rows, spec.sampling.window),
            uniforms=torch.zeros(rows, draws, 2, device=device),
            min_tokens=full(0, rows),
            max_tokens=full(draws, rows),
            done=full(False, rows, dtype=torch.bool),
            stop_id=full(-1, rows),
            finite=full(True, rows, dtype=torch.bool),
            out=full(0, rows, draws),
            forbid=full(False, rows, spec.head_rows, dtype=torch.bool),
            forbid_early=full(False, rows, spec.head_rows, dtype=torch.bool),
        )

    @torch.inference_mode()
    def prefill(
        self,
        state: DecodeState,
        row: int,
        inputs: Tensor,
        sampler: Sampler | None = None,
        context: int | None = None,
    ) -> None:
        """Feed inputs (L, D) to one row and draw its first id."""
        hidden = self.feed(state, row, inputs, context)
        self._draw(_row(state, row), self.log_probs(hidden), sampler)

    @torch.inference_mode()
    def feed(self, state: DecodeState, row: int, inputs: Tensor, context: int | None = None) -> Tensor:
        """Feed inputs (L, D) to one row without drawing -> (1, D), the last hidden state."""
        cache = state.cache.row(row)
        hidden = self.backbone(inputs[None], cache, context=context)[:, -1]
        state.cache.used = max(state.cache.used, cache.used)
        return hidden

    @torch.inference_mode()
    def decode_step(self, state: DecodeState, sampler: Sampler | None = None, context: int | None = None) -> None:
        """One id for every row that has not ended; no result reaches the host. context: see Backbone.forward."""
        active = ~state.done
        inputs = self.embed_speech(state.token)[:, None]
        hidden = self.backbone(inputs, state.cache, advance=active.long(), context=context)
        self._draw(state, self.log_probs(hidden[:, 0]), sampler)

    def finish_step(self, state: DecodeState, rows: int, log_probs: Tensor) -> None:
        """What follows the model in a step of the first `rows` rows: positions move, ids are drawn and recorded."""
        some = first_rows(state, rows)
        some.cache.length += ~some.done
        self._draw(some, log_probs, None)

    def _draw(self, state: DecodeState, log_probs: Tensor, sampler: Sampler | None) -> None:
        """Sample from (B, V) and record, all in place."""
        spec = self.spec
        active = ~state.done
        total = log_probs.sum(-1)
        broken = total - total != 0  # as soon as one of them is not finite
        early = (state.step < state.min_tokens)[:, None] & state.forbid_early
        masked = torch.where(state.forbid | early, -torch.inf, log_probs)
        if sampler is None:
            at = state.draw.clamp(max=state.uniforms.shape[1] - 1)
            pair = state.uniforms.gather(1, at[:, None, None].expand(-1, 1, 2))[:, 0]
            ids = repetition_aware(masked, state.recent, pair, spec.sampling)
        else:
            ids = sampler(masked, state)
        stops = ids >= spec.speech_tokens
        over = stops | broken
        emit = active > over  # of bools: and not
        at = state.step.clamp(max=state.out.shape[1] - 1)[:, None]
        state.out.scatter_(1, at, torch.where(emit[:, None], ids[:, None], state.out.gather(1, at)))
        rolled = torch.cat([state.recent[:, 1:], ids[:, None]], dim=1)
        state.recent.copy_(torch.where(active[:, None], rolled, state.recent))
        state.token.copy_(torch.where(emit, ids, state.token))
        state.stop_id.copy_(torch.where(active & stops, ids, state.stop_id))
        state.step += emit
        state.draw += active
        torch.gt(state.finite, active & broken, out=state.finite)
        state.done |= over | (state.step >= state.max_tokens)  # of rows that had ended nothing is changed by it

    def read(self, state: DecodeState, row: int) -> Progress:
        """Copy one row's results to the host: the only synchronisation of decoding."""
        head = torch.stack([state.step[row], state.done[row].long(), state.stop_id[row], state.finite[row].long()])
        packed = torch.cat([head, state.out[row]]).tolist()
        count, done, stop_id, finite = packed[:4]
        return Progress(packed[4 : 4 + count], bool(done), stop_id, bool(finite))


def first_rows(state: DecodeState, rows: int) -> DecodeState:
    """The first `rows` rows as views of the same memory."""
    return _rows(state, slice(0, rows))


def _row(state: DecodeState, index: int) -> DecodeState:
    """One row as views."""
    return _rows(state, slice(index, index + 1))


def _rows(state: DecodeState, at: slice) -> DecodeState:
    return DecodeState(
        state.cache.rows(at), *(getattr(state, name)[at] for name in DecodeState.__slots__ if name != "cache")
    )
