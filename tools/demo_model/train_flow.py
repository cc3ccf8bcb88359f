"""Train the flow: the engine's Flow at small size, on corpus folders with their codes.

    python -m tools.demo_model.train_flow --train c/0 c/1 c/2 --codes codes.npz --dev c/dev --dev-codes codes_dev.npz
        --out out --seconds 560 [--resume out/flow.safetensors]

Conditional flow matching on the mel. A row is a few utterances of one voice, one after another; the speaker vector
comes from yet another one, and the mel of the row's beginning is given as the prompt in most rows, sometimes with the
codes and the vector that a microphone would have led to, while the target stays clean. Guidance is learned by leaving
out all conditions in a fifth of the rows. Half of the steps use the block masks of streaming. Every step is a CUDA
graph, data included. Writes flow.safetensors (average weights, half precision), flow.json (gates), and
flow_dev.npz: mel of dev utterances for the vocoder.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosy_engine.audio.features import flow_mel
from cosy_engine.flow import Flow, build_flow
from cosy_engine.flow.layers import attention_mask
from cosy_engine.settings.model_spec import DiTSpec, MelSpec
from cosy_engine.stages import FlowPrompt
from tools.demo_model import codes, cuda_graph, data, schedule, sizes

MEL = MelSpec()
FRAMES_PER_TOKEN = 2
UTTERANCES = 8  # drawn for a row; more than enough to fill it
SIGMA = 1e-6
GUIDANCE_DROP = 0.2


class Rows:
    """Mel, codes and vectors of a corpus on the device, and random rows of them; device operations only."""

    def __init__(self, c: data.Corpus, coded: codes.Codes, rows: int, tokens: int):
        device = c.device
        assert len(c.items) == len(coded.length) and c.voice.cpu().tolist() == coded.voice.tolist(), "other codes"
        self.rows, self.tokens_per_row, self.device = rows, tokens, device
        order = np.argsort(coded.voice, kind="stable")
        length = np.minimum(coded.length, c.samples // MEL.hop_samples // FRAMES_PER_TOKEN)[order]
        self.mel = torch.empty(int(length.sum()) * FRAMES_PER_TOKEN, MEL.bins, dtype=torch.float16, device=device)
        begins = np.cumsum([0, *length[:-1]])
        self._compute_mels(c, order, length, begins)
        keep = np.concatenate(
            [np.arange(coded.start[k], coded.start[k] + n) for k, n in zip(order, length, strict=True)]
        )
        self.codes = torch.from_numpy(coded.tokens[:, keep].astype(np.int16)).to(device)
        self.vectors = torch.from_numpy(coded.vectors[:, order]).to(device)
        self.length, self.begins = torch.from_numpy(length).to(device), torch.from_numpy(begins).to(device)
        sorted_voice = coded.voice[order]
        first = np.searchsorted(sorted_voice, sorted_voice)
        self.first = torch.from_numpy(first).to(device)  # of each utterance's voice
        self.count = torch.from_numpy(np.searchsorted(sorted_voice, sorted_voice, "right") - first).to(device)
        self.order = order

    def _compute_mels(self, c: data.Corpus, order, length, begins, batch: int = 64) -> None:
        by_length = np.argsort(length)
        for at in range(0, len(order), batch):
            some = by_length[at : at + batch]
            n = int(length[some].max()) * FRAMES_PER_TOKEN
            ids = torch.as_tensor(order[some], device=c.device)
            mel = flow_mel(c.wave(ids, n * MEL.hop_samples), MEL).half()
            for row, k in enumerate(some):
                frames = int(length[k]) * FRAMES_PER_TOKEN
                start = int(begins[k]) * FRAMES_PER_TOKEN
                self.mel[start : start + frames] = mel[row, :frames]

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """mel (B, M, 2 T), codes (2, B, T) clean and noisy, vectors (2, B, 192) of another utterance, first (B,):
        tokens of the row's first utterance."""
        device, rows, tokens = self.device, self.rows, self.tokens_per_row
        seed = torch.randint(len(self.length), (rows,), device=device)
        pick = (torch.rand(rows, UTTERANCES + 1, device=device) * self.count[seed][:, None]).long()
        chosen = self.first[seed][:, None] + pick  # (B, UTTERANCES + 1) of the same voice
        other, chosen = chosen[:, -1], chosen[:, :-1]
        ends = self.length[chosen].cumsum(1)
        k = torch.arange(tokens, device=device).expand(rows, -1).contiguous()
        which = torch.searchsorted(ends, k, right=True).clamp(max=UTTERANCES - 1)
        utterance = chosen.gather(1, which)
        inside = k - (ends.gather(1, which) - self.length[utterance])
        token = self.begins[utterance] + torch.minimum(inside, self.length[utterance] - 1)
        frame = (token[..., None] * FRAMES_PER_TOKEN + torch.arange(FRAMES_PER_TOKEN, device=device)).flatten(1)
        mel = self.mel[frame].float().transpose(1, 2)
        return mel, self.codes[:, token].long(), self.vectors[:, other].float(), ends[:, 0]


def initialise(flow: Flow) -> None:
    """Modulations and output begin at zero, as the published DiT's do."""
    estimator = flow.decoder.estimator
    layers = [block.attn_norm["linear"] for block in estimator.transformer_blocks]
    for layer in (*layers, estimator.norm_out["linear"], estimator.proj_out):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)


class Step:
    """One training step."""

    def __init__(self, flow: Flow, rows: Rows, optimiser, average, streaming: bool):
        self.flow, self.rows, self.optimiser, self.average, self.streaming = flow, rows, optimiser, average, streaming

    def loss(self) -> Tensor:
        """Mean distance of velocities; only frames after the prompt count."""
        flow = self.flow
        mel, both, vectors, first = self.rows.draw()
        rows, _, frames = mel.shape

        def draw(*shape):
            return torch.rand(rows, *shape, device=mel.device)

        # the prompt: nothing, a part of the row's beginning, or its whole first utterance
        share = (draw() * 0.6).clamp(max=0.5) * frames / FRAMES_PER_TOKEN
        prompt = torch.where(draw() < 0.5, first.float().clamp(max=frames / 4), share) * (draw() > 0.25)
        in_prompt = torch.arange(frames, device=mel.device)[None] < (prompt.long() * FRAMES_PER_TOKEN)[:, None]
        noisy = draw() < 0.3
        heard = noisy[:, None] & in_prompt[:, ::FRAMES_PER_TOKEN]
        tokens = torch.where(heard, both[codes.NOISY], both[codes.CLEAN])
        vector = torch.where((draw() < 0.3)[:, None], vectors[codes.NOISY], vectors[codes.CLEAN])
        hiss = torch.randn_like(mel) * (draw(1, 1) * 0.3 * noisy[:, None, None])
        cond = (mel + hiss) * in_prompt[:, None]
        kept = (draw() >= GUIDANCE_DROP).float()[:, None, None]
        mu = flow.condition(tokens, streaming=self.streaming) * kept
        speaker, cond = flow.speaker(vector) * kept[..., 0], cond * kept
        t = 1 - torch.cos(draw() * math.pi / 2)
        noise = torch.randn_like(mel)
        x = (1 - (1 - SIGMA) * t[:, None, None]) * noise + t[:, None, None] * mel
        goal = mel - (1 - SIGMA) * noise
        mask = attention_mask(frames, 2 * flow.block if self.streaming else None, None, mel.device)
        modulation = flow.decoder.estimator.modulation(t)
        with torch.autocast(mel.device.type, torch.bfloat16, enabled=mel.is_cuda):
            inputs = (c.transpose(1, 2) for c in (x, mu))
            v = flow.decoder.estimator(*inputs, speaker, cond.transpose(1, 2), modulation, mask=mask)
        off = (v.transpose(1, 2) - goal).abs()
        weight = (1 - 0.9 * in_prompt.float())[:, None]
        return (off * weight).sum() / (weight.sum() * mel.shape[1])

    def __call__(self) -> dict[str, Tensor]:
        loss = self.loss()
        norm = cuda_graph.descend(self.optimiser, self.flow, loss, 1.0)
        self.average.update()
        return {"streaming" if self.streaming else "loss": loss.detach(), "norm": norm}


@torch.no_grad()
def gates(flow: Flow, rows: Rows, c: data.Corpus, limit: int) -> tuple[dict, dict]:
    """Mel L1 of dev utterances made from true codes after a prompt of the voice, whole and under streaming masks."""
    rng = np.random.default_rng(11)
    length, first, count = (x.cpu().numpy() for x in (rows.length, rows.first, rows.count))
    far, streamed, mels, made_of = [], [], [], []
    for k in rng.permutation(np.nonzero((length > 30) & (count > 1))[0])[:limit]:
        other = int(first[k] + rng.integers(count[k]))
        other = other if other != k else int(first[k] + (k - first[k] + 1) % count[k])

        def of(u: int) -> tuple[Tensor, Tensor]:
            at, n = int(rows.begins[u]), int(rows.length[u])
            return rows.codes[codes.CLEAN, at : at + n].long(), rows.mel[2 * at : 2 * (at + n)].float()

        tokens, mel = of(int(k))
        prompt_tokens, prompt_mel = of(other)
        prompt = FlowPrompt(prompt_tokens, prompt_mel, rows.vectors[codes.CLEAN, other].float())
        made = flow.whole([tokens], [prompt])[0].T
        far.append((made - mel).abs().mean().item())
        in_blocks = flow.whole([tokens], [prompt], streaming=True)[0].T
        streamed.append((in_blocks - mel).abs().mean().item())
        mels.append(made.cpu().numpy().astype(np.float16))
        made_of.append(int(rows.order[k]))
    result = {"mel_l1": float(np.mean(far)), "mel_l1_streaming": float(np.mean(streamed))}
    lengths = np.array([len(m) for m in mels])
    return result, {"mel": np.concatenate(mels), "frames": lengths, "utterance": np.array(made_of)}


def main():
    ap = schedule.arguments(__doc__, seconds=560, rate=6e-4)
    ap.add_argument("--codes", nargs="+", required=True, help="codes.npz of --train, in the same order")
    ap.add_argument("--dev-codes", required=True)
    ap.add_argument("--rows", type=int, default=96)
    ap.add_argument("--tokens", type=int, default=200, help="of a row: 8 s")
    ap.add_argument("--dim", type=int, default=sizes.DIT.dim)
    ap.add_argument("--depth", type=int, default=sizes.DIT.depth)
    ap.add_argument("--gate-rows", type=int, default=48)
    a = ap.parse_args()
    device, out = torch.device(a.device), Path(a.out)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(6)
    log = schedule.Log(out / "flow.log")
    c, d = data.Corpus(a.train, device, a.hours), data.Corpus([a.dev], device)
    rows = Rows(c, codes.load(a.codes), a.rows, a.tokens)
    dev_rows = Rows(d, codes.load([a.dev_codes]), 1, a.tokens)
    estimator = DiTSpec(a.dim, a.depth, a.dim // sizes.DIT.head_dim, sizes.DIT.head_dim, sizes.DIT.ff_mult)
    flow = build_flow(sizes.flow_spec(estimator)).to(device)
    initialise(flow)
    if a.resume:
        schedule.load(a.resume, {"flow": flow})
    optimiser, rate = cuda_graph.optimiser(flow, a.rate, betas=(0.9, 0.99), weight_decay=0.01)
    average = cuda_graph.DeviceAverage(flow, 0.9995)
    hours = float(c.seconds.sum() / 3600)
    log(note="loaded", hours=hours, utterances=len(c.items), parameters=schedule.parameters(flow))
    clock = schedule.Clock(a.seconds, a.steps)
    rate.fill_(clock.rate(a.rate))
    steps = [cuda_graph.captured(Step(flow, rows, optimiser, average, streaming)) for streaming in (False, True)]
    while clock.progress() < 1:
        rate.fill_(clock.rate(a.rate))
        average.set_step(clock.step)
        log.add(steps[clock.step % 2]())
        clock.step += 1
        if clock.step % 500 == 0 or clock.step == 20:
            log.means(step=clock.step, rate=rate)
    average.apply()
    flow.finish_loading()
    facts = {"steps": clock.step, "seconds": round(clock.elapsed_s()), "hours": round(hours, 2)}
    facts |= {"dim": a.dim, "depth": a.depth}
    schedule.save(out / "flow.safetensors", {"flow": flow}, half=True, **facts)
    result, made = gates(flow, dev_rows, d, a.gate_rows)
    result = facts | {"parameters": schedule.parameters(flow)} | result
    (out / "flow.json").write_text(json.dumps(result, indent=1))
    np.savez(out / "flow_dev.npz", **made)
    log(note="done", **result)


if __name__ == "__main__":
    main()
