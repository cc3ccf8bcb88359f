"""The contracts between engine and models, with shapes. Fakes in tests fulfil them too.

Stages hold weights only; what one stream remembers lives in a state object that the caller owns, so one stage serves
any number of streams. Nothing here draws from a global generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, eq=False)
class FlowPrompt:
    """What the flow is told of the voice, on the stage's device.

    tokens: (P,) int64. mel: (F, M) float32, F = 2P normally (voice conversion may differ). embedding: (192,) float32.
    """

    tokens: Tensor
    mel: Tensor
    embedding: Tensor


class FlowDecoder(Protocol):
    """Speech tokens to mel."""

    def whole(
        self, tokens: list[Tensor], prompts: list[FlowPrompt], *, streaming: bool = False, finalize: bool = True
    ) -> list[Tensor]:
        """One pass for each row of a batch: (T_i,) int64 and its prompt -> (M, 2 T_i) float32, prompt frames cut.

        streaming chooses the block masks, finalize=False treats the last 3 tokens as look-ahead only.
        Rows of different length give what each gives alone, to rounding.
        """
        ...

    def start(self, prompt: FlowPrompt) -> Any:
        """State of a new stream; holds caches of finished blocks."""
        ...

    def advance(self, state: Any, tokens: Tensor, *, final: bool = False) -> Tensor:
        """Take (T,) new tokens, T >= 0 and of any size, and return (M, F) new final mel frames, F >= 0.

        Frames come as soon as their 25-token block (counted from the start of the prompt) and 3 look-ahead tokens are
        there; `final` flushes the rest. Concatenated output equals whole(streaming=True) to rounding.
        """
        ...

    def tokens_to_next(self, state: Any) -> int:
        """How many more tokens make the next block complete (look-ahead included). Known on the host: no sync."""
        ...


class Vocoder(Protocol):
    """Mel to waveform."""

    def whole(self, mel: Tensor, *, seed: int = 0) -> Tensor:
        """(M, F) float32 -> (480 F,) float32 in [-0.99, 0.99]. seed is used only where the source noise is drawn (v2)."""
        ...

    def start(self, *, seed: int = 0) -> Any:
        """State of a new stream."""
        ...

    def advance(self, state: Any, mel: Tensor, *, final: bool = False) -> Tensor:
        """Take (M, F) new frames, F >= 0, return the samples that are now final; `final` flushes the rest.

        The sum over a stream is 480 samples a frame.
        """
        ...
