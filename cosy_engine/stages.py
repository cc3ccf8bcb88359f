"""The contracts between engine and models, with shapes. Fakes in tests fulfil them too.

Stages hold weights only; what one stream remembers lives in a state object that the caller owns, so one stage serves
any number of streams. Nothing here draws from a global generator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from cosy_engine.scheduling.hop import HopPolicy


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

    spec: Any

    def whole(
        self, tokens: list[Tensor], prompts: list[FlowPrompt], *, streaming: bool = False, finalize: bool = True
    ) -> list[Tensor]:
        """One pass for each row of a batch: (T_i,) int64 and its prompt -> (M, 2 T_i) float32, prompt frames cut.

        streaming chooses the block masks, finalize=False treats the last 3 tokens as look-ahead only.
        Rows of different length give what each gives alone, to rounding.
        """
        ...

    def start(self, prompt: FlowPrompt) -> Any:
        """State of a new stream, which has a `fork()`; holds caches of finished blocks."""
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


@runtime_checkable
class GroupingFlow(FlowDecoder, Protocol):
    """A FlowDecoder that solves several requests at once in less time than one after another."""

    def order(self, tokens: Tensor, prompt: FlowPrompt, *, streaming: bool = False, finalize: bool = True) -> Any:
        """What `whole` has to make for one row: an order with `flow` (this one), `size` (orders of one size are padded to the same
        frames; None is solved alone) and `mel`, None until it is solved."""
        ...

    def next_order(self, state: Any, tokens: Tensor, *, final: bool = False) -> Any | None:
        """What `advance` with the same arguments has to make, None when that is nothing. Once it is solved, `advance` takes it."""
        ...

    def groups(self, size: int) -> tuple[int, ...]:
        """How many orders of at most this size can be solved at once, beyond one."""
        ...

    def solve(self, orders: list[Any]) -> None:
        """Fill the `mel` of one order, or of as many as `groups` of their largest size names."""
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


class DecodePool(Protocol):
    """Rows being decoded together; see llm.pool."""

    active: int
    steps: int  # decode steps of a launch

    def fits(self, plan: Any) -> bool:
        """Whether a row has room for the plan."""
        ...

    def admit(self, plan: Any) -> int | None:
        """Prefill a free row and draw its first id; None when all rows are taken."""
        ...

    def release(self, row: int) -> None:
        """Free a row; its owner hears no more of it."""
        ...

    def launch(self) -> None:
        """Send some decode steps for all rows."""
        ...

    def collect(self) -> dict[int, Any]:
        """Progress of each row after the last launch."""
        ...


@dataclass(frozen=True, eq=False)
class Stages:
    """One model at one precision and tier.

    lm: its spec, device and, for text in pieces, its steps. pool: the shared decode batch. lone_pool: makes a pool of one row of
    a given size, for a request that does not fit. plan: makes what a pool admits (llm.pool.RowPlan). bistream: the driver
    for text that arrives in pieces (llm.bistream.Bistream). stretch: (M, F) mel and speed -> (M, int(F / speed)).
    read_every: decode steps between two looks at the device. hop: how the chunks of a stream grow.
    """

    lm: Any
    pool: DecodePool
    lone_pool: Any
    plan: Any
    flow: FlowDecoder
    vocoder: Vocoder
    bistream: Any
    stretch: Any
    precision: str = "fp32"
    tier: str = "eager"
    read_every: int = 1
    hop: HopPolicy = field(default_factory=HopPolicy)
