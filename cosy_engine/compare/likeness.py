"""How far a variant's output is from the baseline's: tokens, log-probabilities, mel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosy_engine.accel.decode_fused import FusedStep
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.audio.features import flow_mel
from cosy_engine.llm.pool import CONTEXT_STEP
from cosy_engine.scheduling.session import Job
from cosy_engine.settings.model_spec import MelSpec
from cosy_engine.stages import Stages

DECIBELS = 20 / np.log(10)  # of one natural-log unit of a magnitude


@dataclass(frozen=True)
class Likeness:
    """tokens_equal: how many leading tokens are the baseline's, of `tokens` here and `base_tokens` there.
    log_prob: mean, and log_prob_worst largest, absolute difference of the log-probability of the baseline's own tokens,
    both models being fed those tokens. mel_db: mean absolute difference of log-mel magnitudes in dB (L1) over the
    `mel_s` seconds that both have; it says something only where the tokens are equal."""

    tokens_equal: int
    tokens: int
    base_tokens: int
    log_prob: float | None
    log_prob_worst: float | None
    mel_db: float | None
    mel_s: float

    @property
    def same_tokens(self) -> bool:
        return self.tokens_equal == self.tokens == self.base_tokens


def likeness(outcome: Any, base: Any, spec: MelSpec) -> Likeness:
    """Of two outcome.Outcome."""
    own, other = ([i for part in o.spoken for i in part] for o in (outcome, base))
    equal = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), min(len(own), len(other)))
    log_prob = worst = None
    if outcome.log_probs is not None and base.log_probs is not None:
        gap = (outcome.log_probs - base.log_probs).abs()
        log_prob, worst = float(gap.mean()), float(gap.max())
    mels = [log_mel(o.samples, spec) for o in (outcome, base)]
    frames = min(map(len, mels))
    mel_db = float(np.abs(mels[0][:frames] - mels[1][:frames]).mean()) if frames else None
    return Likeness(equal, len(own), len(other), log_prob, worst, mel_db, frames * spec.hop_samples / spec.rate_hz)


def log_mel(samples: np.ndarray, spec: MelSpec) -> np.ndarray:
    """(N,) float32 -> (F, M) log-mel magnitudes in dB; no frames where the sound is shorter than a window."""
    if len(samples) < spec.win_samples:
        return np.zeros((0, spec.bins), np.float32)
    return flow_mel(torch.from_numpy(np.ascontiguousarray(samples))[None], spec)[0].numpy() * DECIBELS


@torch.inference_mode()
def forced_log_probs(stages: Stages, job: Job, tokens: list[int]) -> Tensor:
    """Log-probability of each of `tokens` (of the job's first segment) after those before it: (T,) float32, on the CPU.

    The tier's own step decodes; a captured graph replays just that step. Runs on the device's own thread.
    """
    lm, pool, segment = stages.lm, stages.pool, job.segments[0]
    inputs = lm.prompt(
        [*segment.prompt_ids, *segment.text_ids], job.voice.tokens if job.llm_hears_reference else job.voice.tokens[:0]
    )
    state = lm.start(1, pool.positions, pool.draws)  # the pool's sizes: compiled kernels serve again
    found = [lm.log_probs(lm.feed(state, 0, inputs, context=len(inputs)))]
    step = getattr(pool.step, "step", None)  # the step that graphs were made of; None is the model's own
    for number, token in enumerate(tokens[:-1]):
        at = len(inputs) + number
        context = min(state.cache.capacity, -(-(at + 1) // CONTEXT_STEP) * CONTEXT_STEP)
        for tensor, value in ((state.token, token), (state.cache.length, at), (state.done, False)):
            tensor.fill_(value)
        if isinstance(step, FusedStep):
            step(state, 1, context)
            found.append(torch.log_softmax(step.logits(1).float(), -1))
        elif isinstance(step, TorchStep):
            found.append(lm.log_probs(lm.backbone.norm(step.hidden(state, 1, context))))
        else:
            found.append(
                lm.log_probs(lm.backbone(lm.embed_speech(state.token)[:, None], state.cache, context=context)[:, 0])
            )
    taken = torch.tensor(tokens, device=lm.device)[:, None]
    return torch.cat(found).gather(1, taken)[:, 0].float().cpu()
