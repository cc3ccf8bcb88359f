"""The flow decoder: speech tokens and a prompt to mel, whole or in a stream (stages.FlowDecoder)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.flow.encoder import ConformerFront, LookaheadFront
from cosy_engine.flow.layers import Conv, Dense, attention_mask
from cosy_engine.flow.solver import FlowSolver, noise_table, start_noise
from cosy_engine.flow.stream import FlowState, block_condition, tokens_ready
from cosy_engine.settings.model_spec import ConformerSpec, FlowSpec
from cosy_engine.stages import FlowPrompt

CACHE_BLOCKS = 4  # blocks a new stream has room for beyond its prompt; then doubling


class Flow(nn.Module):
    """Weights of the flow under their published names.

    Order after building: load_state_dict, move to the device, `finish_loading()`, then `set_precision(dtype)`.
    The public ways to sound (`whole`, `start`, `advance`) run in inference mode; `condition`, `speaker` and `velocity`
    are the same networks for training.
    """

    def __init__(self, spec: FlowSpec):
        super().__init__()
        self.spec = spec
        self.block, self.lookahead, self.mel_bins = spec.block_tokens, spec.lookahead_tokens, spec.mel_bins
        self.input_embedding = nn.Embedding(spec.speech_tokens, spec.input_width)
        self.spk_embed_affine_layer = nn.Linear(spec.speaker_width, spec.mel_bins)
        # the published trees put the two front networks at different names; encoder_proj exists in v2 only
        if isinstance(spec.front, ConformerSpec):
            self.front_name = "encoder"
            self.encoder = ConformerFront(spec)
            self.encoder_proj = Dense(spec.front.width, spec.mel_bins)
        else:
            self.front_name = "pre_lookahead_layer"
            self.pre_lookahead_layer = LookaheadFront(spec)
            self.encoder_proj = nn.Identity()
        self.decoder = FlowSolver(spec)

    # ---- after loading

    @torch.no_grad()
    def finish_loading(self) -> Flow:
        """Compute what depends on weights and the solver's fixed times alone, and switch to inference.

        Call once weights are loaded and on their device, before set_precision (tables come from fp32 weights then).
        `train()` drops the tables again, for the weights move.
        """
        self.eval()
        self.decoder.table = None
        self.decoder.table = self.decoder.time_table()
        noise_table(self.mel_bins, self.device)
        return self

    def train(self, mode: bool = True) -> Flow:
        if mode:
            self.decoder.table = None
        return super().train(mode)

    def set_precision(self, dtype: torch.dtype) -> Flow:
        """Matrices and convolutions in dtype (float32, float16, bfloat16); embeddings, norms and tables stay fp32.

        Residual streams, softmax, rotary and the ODE state are fp32 always. bfloat16 is the safe half precision: its
        range is that of fp32. float16 saturates at 65504 where a value is about to leave it.
        """
        for module in self.modules():
            if isinstance(module, Dense | Conv):
                module.to(dtype)
        return self

    @property
    def device(self) -> torch.device:
        return self.input_embedding.weight.device

    @torch.no_grad()
    def drop_time_weights(self) -> Flow:
        """Free the weights that only make the table of the fixed times (v3: a third of the estimator): inference alone is left."""
        assert self.decoder.table is not None, "finish_loading() first"
        for layer in self.decoder.estimator.time_layers():
            for p in layer.parameters():
                p.data = p.data.new_zeros(0)
        return self

    # ---- networks, with gradients

    def noise(self, start: int, frames: int) -> Tensor:
        """(frames, M) start values of the solver for frames start .. start+frames-1.

        Raises: TextTooLong: the fixed table ends before.
        """
        return start_noise(self.mel_bins, start, frames, self.device)

    def speaker(self, embedding: Tensor) -> Tensor:
        """(B, 192) raw speaker vectors -> (B, M)."""
        return self.spk_embed_affine_layer(F.normalize(embedding.float(), dim=-1))

    def condition(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        *,
        streaming: bool | Tensor = False,
        finalize: bool = True,
        ready: Tensor | None = None,
    ) -> Tensor:
        """mu: what the tokens ask for. (B, T) int64, right-padded -> (B, M, 2T), or 2(T - 3) frames unless finalize.

        lengths: (B,) valid tokens; None when all rows are full. Negative ids count as 0. streaming, ready: see
        encoder.LookaheadFront.forward.
        """
        mu = self._front(tokens, lengths, streaming=streaming, finalize=finalize, ready=ready)
        return mu.transpose(1, 2)

    def velocity(
        self,
        x: Tensor,
        mu: Tensor,
        t: Tensor,
        speaker: Tensor,
        cond: Tensor,
        lengths: Tensor | None = None,
        *,
        streaming: bool = False,
    ) -> Tensor:
        """One evaluation at any time, for the flow-matching loss: (B, M, F) like x.

        Args: x, mu, cond: (B, M, F). t: (B,) in [0, 1]. speaker: (B, M). lengths: (B,) valid frames of right-padded
            rows. streaming: block masks. Padded frames of the result hold garbage: mask the loss.
        """
        mask = attention_mask(x.shape[2], 2 * self.block if streaming else None, lengths, x.device)
        x, mu, cond = (c.transpose(1, 2).float() for c in (x, mu, cond))
        modulation = self.decoder.estimator.modulation(t)
        return self.decoder.estimator(x, mu, speaker, cond, modulation, mask=mask).transpose(1, 2)

    def _front(self, tokens: Tensor, lengths: Tensor | None = None, **kwargs) -> Tensor:
        embedded = self.input_embedding(tokens.long().clamp(min=0))
        return self.encoder_proj(getattr(self, self.front_name)(embedded, lengths, **kwargs)).float()

    # ---- whole utterances

    @torch.inference_mode()
    def whole(
        self, tokens: list[Tensor], prompts: list[FlowPrompt], *, streaming: bool = False, finalize: bool = True
    ) -> list[Tensor]:
        """See stages.FlowDecoder.whole. A row too short to give a frame yields (M, 0).

        With a prompt mel of F != 2P frames the row has 2(P + T) - F frames.
        Raises: TextTooLong: prompt and tokens together exceed 15000 frames.
        """
        assert len(tokens) == len(prompts)
        ahead = 0 if finalize else self.lookahead
        sizes = [len(prompt.tokens) + len(row) for row, prompt in zip(tokens, prompts, strict=True)]
        frames = [2 * max(0, size - ahead) for size in sizes]
        live = [i for i, count in enumerate(frames) if count > prompts[i].mel.shape[0]]
        mels = [torch.zeros(self.mel_bins, 0, device=self.device)] * len(tokens)
        if not live:
            return mels
        longest = max(frames[i] for i in live)
        noise = start_noise(self.mel_bins, 0, longest, self.device).expand(len(live), -1, -1)

        ids = [torch.cat([prompts[i].tokens, tokens[i]]).to(self.device) for i in live]
        ids = nn.utils.rnn.pad_sequence(ids, batch_first=True)
        even = len({sizes[i] for i in live}) == 1
        # filled on the device: copying a list there would wait for it
        lengths = None if even else torch.cat([torch.full((1,), sizes[i], device=self.device) for i in live])
        mu = self._front(ids, lengths, streaming=streaming, finalize=finalize)
        cond = torch.stack([block_condition(prompts[i].mel.float(), 0, longest) for i in live])
        speaker = self.speaker(torch.stack([prompts[i].embedding for i in live]))
        valid = None if even else 2 * (lengths - ahead)
        mask = attention_mask(longest, 2 * self.block if streaming else None, valid, self.device)
        mel = self.decoder(noise, mu, speaker, cond, mask)
        for row, i in enumerate(live):
            mels[i] = mel[row, prompts[i].mel.shape[0] : frames[i]].T.contiguous()
        return mels

    # ---- streams

    @torch.inference_mode()
    def start(self, prompt: FlowPrompt) -> FlowState:
        """A new stream, with all of the prompt's blocks that can be finished already computed.

        That part depends on the voice alone: keep one started state per voice and give each request its `fork()`.
        """
        room = len(prompt.tokens) + CACHE_BLOCKS * self.block
        room = (room // self.block + 1) * self.block
        state = FlowState(
            prompt=prompt,
            speaker=self.speaker(prompt.embedding[None]),
            tokens=prompt.tokens[None].long(),
            front=getattr(self, self.front_name).init_state(room),
            steps=self.decoder.init_caches(2 * room),
        )
        self._finish_blocks(state, final=False)
        return state

    @torch.inference_mode()
    def advance(self, state: FlowState, tokens: Tensor, *, final: bool = False) -> Tensor:
        """See stages.FlowDecoder.advance. Work is done only when a block completes; a lone token just waits.

        Raises: TextTooLong: prompt and tokens together exceed 15000 frames.
        """
        assert not state.finished, "advance() after final=True: start or fork a new stream"
        if tokens.shape[0]:
            state.tokens = torch.cat([state.tokens, tokens[None].to(state.tokens.device, torch.long)], dim=1)
        self._finish_blocks(state, final)
        state.finished = final
        out = torch.cat(state.held) if state.held else torch.zeros(0, self.mel_bins, device=self.device)
        state.held = []
        return out.T.contiguous()

    def tokens_to_next(self, state: FlowState) -> int:
        """See stages.FlowDecoder.tokens_to_next. Counts to the next block that gives frames: one that lies within the
        prompt gives none. 0 when frames are held already."""
        if state.held:
            return 0
        first_useful = (state.prompt.mel.shape[0] // 2 // self.block + 1) * self.block
        end = max(first_useful, state.done_tokens + self.block)
        return end + self.lookahead - state.done_tokens - state.tokens.shape[1]

    def _finish_blocks(self, state: FlowState, final: bool) -> None:
        """Compute every block that is complete (all that is left when final) and hold its frames."""
        waiting = state.tokens.shape[1]
        count = tokens_ready(waiting, self.block, self.lookahead, final)
        if count == 0:
            return
        start, frames = 2 * state.done_tokens, 2 * count
        noise = start_noise(self.mel_bins, start, frames, self.device)[None]  # first: it may refuse, state untouched
        seen = state.tokens if final else state.tokens[:, : count + self.lookahead]
        mu = self._front(seen, streaming=True, finalize=final, state=state.front)
        cond = block_condition(state.prompt.mel.float(), start, frames)[None]
        mask = attention_mask(frames, 2 * self.block, None, self.device, start)
        mel = self.decoder(noise, mu, state.speaker, cond, mask, start=start, caches=state.steps)[0]
        prompt_left = max(0, state.prompt.mel.shape[0] - start)
        if prompt_left < frames:
            state.held.append(mel[prompt_left:])
        state.done_tokens += count
        state.tokens = state.tokens[:, count:]


def build_flow(spec: FlowSpec) -> Flow:
    """The flow of a release, with random weights (also under `torch.device("meta")`)."""
    return Flow(spec)
