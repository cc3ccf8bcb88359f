"""Text that arrives piece by piece while speech tokens are produced: 5 text ids, then 15 speech tokens, in turn.

Origin: the family's "bistream" training layout. Three quirks of upstream are mended unless `compatible`:
the last speech token before a fill is not fed a second time when the text ends; without reference tokens decoding
waits for the first 5 text ids; a text that ends before the reference tokens were mixed in falls back to the plain
layout instead of dropping them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cosy_engine.errors import NotFinite
from cosy_engine.llm.speech_lm import DecodeState, Sampler, SpeechLM


class Bistream:
    """One row of a DecodeState driven by text pieces.

    Args: instruction_ids: ids fed right after sos (v3: the prompt text up to and including <|endofprompt|>).
    text_ids: the rest of the prompt text. speech_ids: (P,) reference tokens, may be empty.
    read_every: decode steps between two looks at the device.
    more_uniforms: n -> (rows, n, 2), called when the table of draws runs out.
    """

    def __init__(
        self,
        lm: SpeechLM,
        state: DecodeState,
        row: int,
        instruction_ids: list[int],
        text_ids: list[int],
        speech_ids: Tensor,
        *,
        more_uniforms: Callable[[int], Tensor],
        compatible: bool = False,
        sampler: Sampler | None = None,
        read_every: int = 1,
    ):
        self.lm, self.state, self.row = lm, state, row
        self.compatible, self.sampler, self.read_every = compatible, sampler, read_every
        self.more_uniforms = more_uniforms
        self.sos, self.task = lm.marks()
        self.instruction = instruction_ids
        self.text = list(text_ids)  # all text ids so far
        self.waiting = list(text_ids)  # those not yet laid into an input
        self.all_speech = speech_ids
        self.speech = speech_ids.tolist()
        self.next_input = torch.cat([self.sos, self._text(instruction_ids)])
        self.input_was_fed = False
        self.decoded = 0  # ids so far, fills included
        self.paused = False
        ratio = lm.spec.mix_speech
        self.next_fill = (len(self.speech) // ratio + 1) * ratio - len(self.speech)
        self.emitted = 0

    def push(self, ids: list[int]) -> Iterator[list[int]]:
        """Take text ids and yield the speech tokens that they release, in portions."""
        spec = self.lm.spec
        for text_id in ids:
            self.text.append(text_id)
            self.waiting.append(text_id)
            while self.speech and len(self.waiting) >= spec.mix_text:
                text, self.waiting = self.waiting[: spec.mix_text], self.waiting[spec.mix_text :]
                speech, self.speech = self.speech[: spec.mix_speech], self.speech[spec.mix_speech :]
                self.next_input = torch.cat([self.next_input, self._text(text), self._speech(speech)])
            if self.speech:
                continue
            if self.paused or self._must_wait_for_first_text():
                if len(self.waiting) < spec.mix_text:
                    continue
                text, self.waiting = self._text(self.waiting[: spec.mix_text]), self.waiting[spec.mix_text :]
                self.next_input = text if self.paused else torch.cat([self.next_input, text])
                self.paused = False
            elif self.input_was_fed:
                continue
            yield from self._mix()

    def finish(self, max_tokens: int) -> Iterator[list[int]]:
        """The text has ended: feed what is left and decode until the end mark, at most `max_tokens` more."""
        if self.speech and not self.compatible:
            # Nothing was fed yet: the plain layout takes all of it.
            last = self.lm.prompt(self.instruction + self.text, self.all_speech)
        else:
            head = [self.next_input] if self.compatible or not self.input_was_fed else []
            last = torch.cat([*head, self._text(self.waiting), self.task])
        self._allow(self.lm.spec.eos_id)
        yield from self._decode(last, max_tokens)

    def _must_wait_for_first_text(self) -> bool:
        if self.decoded or self.input_was_fed or len(self.all_speech):
            return False
        # Upstream looks at the length of the input, so an instruction makes it start with no text at all.
        return len(self.next_input) == 1 if self.compatible else True

    def _mix(self) -> Iterator[list[int]]:
        """Decode up to the next fill, drawn or forced."""
        self._allow(self.lm.spec.fill_id)
        limit = self.next_fill - self.decoded
        if limit:
            progress = yield from self._decode(self.next_input, limit)
            drawn = progress.stop_id >= 0
        else:
            drawn = False
        if not drawn:  # forced: what comes before the fill is fed, the prediction after it is not used
            self.state.cache.reserve(self.state.cache.used + len(self.next_input) + 1)
            self.lm.feed(self.state, self.row, self.next_input)
            self.input_was_fed = True
            recent = self.state.recent[self.row]
            recent.copy_(torch.cat([recent[1:], recent.new_tensor([self.lm.spec.fill_id])]))
        self.next_fill = self.decoded + self.lm.spec.mix_speech + 1
        self.decoded += 1
        self.paused = True

    def _decode(self, inputs: Tensor, limit: int) -> Iterator[list[int]]:
        """Feed inputs (L, D), then draw until a stop id or `limit` ids; yields new ids, returns the last Progress."""
        state, row = self.state, self.row
        state.cache.reserve(state.cache.used + len(inputs) + limit + 2)
        self._reserve_draws(limit + 1)
        state.max_tokens[row] = state.step[row] + limit
        state.done[row] = False
        state.stop_id[row] = -1
        self.lm.prefill(state, row, inputs, self.sampler)
        self.input_was_fed = True
        before, steps = self.emitted, 1
        while True:
            progress = self.lm.read(state, row)
            if not progress.finite:
                raise NotFinite("the language model gave values that are no numbers: try precision fp32")
            new = progress.tokens[self.emitted :]
            if new:
                self.emitted += len(new)
                self.decoded += len(new)
                yield new
            if progress.done:
                # What the model saw last: the newest speech token, or `inputs` when they gave a stop id at once.
                self.next_input = self._speech(progress.tokens[-1:]) if self.emitted > before else inputs
                return progress
            for _ in range(min(self.read_every, limit - steps)):
                self.lm.decode_step(state, self.sampler)
                steps += 1

    def _reserve_draws(self, more: int) -> None:
        """Room for `more` further ids in the row's tables, doubling."""
        state = self.state
        needed, have = self.decoded + more, state.out.shape[1]
        if needed > have:
            grow = max(needed, 2 * have) - have
            state.out = torch.nn.functional.pad(state.out, (0, grow))
            state.uniforms = torch.cat([state.uniforms, self.more_uniforms(grow)], dim=1)

    def _allow(self, stop_id: int) -> None:
        """Only codes and this one stop id may be drawn."""
        forbid = self.state.forbid[self.row]
        forbid[self.lm.spec.speech_tokens :] = True
        forbid[stop_id] = False

    def _text(self, ids: list[int]) -> Tensor:
        return self.lm.embed_text(torch.tensor(ids, dtype=torch.int64, device=self.lm.device))

    def _speech(self, ids: list[int]) -> Tensor:
        return self.lm.embed_speech(torch.tensor(ids, dtype=torch.int64, device=self.lm.device))
