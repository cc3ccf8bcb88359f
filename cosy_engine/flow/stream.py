"""What one stream of the flow remembers, and how it moves on by whole blocks.

Under block masks a finished block never changes again, at no solver step and in no layer, once its 3 look-ahead
tokens are known. So a block is computed once: all 10 steps of it, against cached keys and values of the blocks before.
The cost is memory: about 2 MB per mel frame at full size in fp16, hence `nbytes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cosy_engine.flow.encoder import FrontState
from cosy_engine.flow.layers import StreamCache
from cosy_engine.stages import FlowPrompt


@dataclass(slots=True)
class FlowState:
    """One stream. `fork()` gives an independent copy: keep the state of a voice's prompt and fork it per request.

    speaker: (1, M). tokens: (1, n) those not yet in a finished block, look-ahead included. done_tokens: in finished
    blocks, prompt included. held: (F, M) frames that are final but not yet handed out (prompt blocks that reach
    beyond a short prompt mel). front, steps: caches of the front network and of the estimator at each solver step.
    """

    prompt: FlowPrompt
    speaker: Tensor
    tokens: Tensor
    front: FrontState
    steps: list[StreamCache]
    done_tokens: int = 0
    held: list[Tensor] = field(default_factory=list)
    finished: bool = False

    def fork(self) -> FlowState:
        """An independent stream that continues from here. Copies the filled part of the caches."""
        steps = [cache.fork() for cache in self.steps]
        return FlowState(
            self.prompt,
            self.speaker,
            self.tokens,
            self.front.fork(),
            steps,
            self.done_tokens,
            list(self.held),
            self.finished,
        )

    @property
    def nbytes(self) -> int:
        """Device memory of the caches."""
        return self.front.nbytes + sum(cache.nbytes for cache in self.steps)


def tokens_ready(waiting: int, block: int, lookahead: int, final: bool) -> int:
    """How many of the waiting tokens can be computed for good: whole blocks with look-ahead, or all at the end."""
    return waiting if final else max(0, waiting - lookahead) // block * block


def block_condition(mel: Tensor, start: int, frames: int) -> Tensor:
    """Rows start .. start+frames-1 of the prompt mel (F, M), zeros after its end."""
    part = mel[start : start + frames]
    return torch.cat([part, part.new_zeros(frames - part.shape[0], mel.shape[1])])
