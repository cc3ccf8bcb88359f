"""Keys and values of past positions, preallocated: rows are slots, written in place, per-row length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cosy_engine.settings.model_spec import LlmSpec


@dataclass(slots=True)
class KVCache:
    """both: keys, then values, (2, layers, B, kv_heads, S, head_dim). length: (B,) int64, positions already written in each row.

    used: host-side upper bound of `length`, so that attention reads no more of S than needed without asking the device.
    """

    both: Tensor
    length: Tensor
    used: int = 0

    @classmethod
    def allocate(cls, spec: LlmSpec, rows: int, capacity: int, device: torch.device, dtype: torch.dtype) -> KVCache:
        shape = (2, spec.layers, rows, spec.kv_heads, capacity, spec.head_dim)
        return cls(torch.zeros(shape, device=device, dtype=dtype), torch.zeros(rows, dtype=torch.int64, device=device))

    @property
    def keys(self) -> Tensor:
        return self.both[0]

    @property
    def values(self) -> Tensor:
        return self.both[1]

    @property
    def capacity(self) -> int:
        return self.both.shape[4]

    def reserve(self, capacity: int) -> None:
        """Grow to at least `capacity` positions, doubling, so that a text that arrives piecemeal copies rarely."""
        if capacity <= self.capacity:
            return
        grow = max(capacity, 2 * self.capacity) - self.capacity
        self.both = torch.nn.functional.pad(self.both, (0, 0, 0, grow))

    def row(self, index: int) -> KVCache:
        """A view of one row; writes go to the same memory."""
        return self.rows(slice(index, index + 1))

    def rows(self, at: slice) -> KVCache:
        """A view of some rows."""
        return KVCache(self.both[:, :, at], self.length[at], self.used)
