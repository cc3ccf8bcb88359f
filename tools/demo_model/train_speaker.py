"""Train the speaker encoder.

    python -m tools.demo_model.train_speaker --train c/0 c/1 c/2 --guests c/guests --dev c/dev --out out
        --independent resemblyzer.npz --warp 0.18 --seconds 400

On augmented crops of 1.5-5 s: which of the training voices it is (additive angular margin); where the voice lies in the
teacher's own space (regression of the style vector's main axes and of the shift, which are known exactly); and, as the
margin alone pushes all voices apart alike, the distances of an independent encoder trained on thousands of people: the
cosine between two crops follows that encoder's, and a linear map of our vector points where its vector does. Its target
is the voice's mean where the voice is the corpus's, the clip's own where `--warp` made a new one.
Writes speaker.safetensors and speaker.json (gates on voices that training never had).
"""

import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.audio.features import kaldi_fbank
from tools.demo_model import augment, data, front_end, schedule
from tools.demo_model.corpus import outside_file
from tools.demo_model.independent import IndependentEncoder

AUDIBLE_AXES = 8


def angular_margin(e: Tensor, centres: Tensor, y: Tensor, scale: float, margin: float) -> tuple[Tensor, Tensor]:
    """(B, D) vectors, (V, D) centres, (B,) voices -> loss (B,) and hits (B,)."""
    cos = F.linear(F.normalize(e), F.normalize(centres)).clamp(-1 + 1e-6, 1 - 1e-6)
    mine = F.one_hot(y, centres.shape[0]).bool()
    moved = cos * math.cos(margin) - torch.sqrt(1 - cos * cos) * math.sin(margin)
    moved = torch.where(cos > math.cos(math.pi - margin), moved, cos - margin * math.sin(margin))
    loss = F.cross_entropy(scale * torch.where(mine, moved, cos), y, reduction="none")
    return loss, (cos.argmax(1) == y).float()


def wanted_cosine(independent: Tensor) -> Tensor:
    """The independent encoder's cosines lie in 0.4 .. 1; spread them over -0.5 .. 1."""
    return 1 - 2.5 * (1 - independent)


@torch.no_grad()
def voice_means(encoder: IndependentEncoder, c: data.Corpus, each: int = 12, batch: int = 192) -> Tensor:
    """(V, 256) mean vector of every voice over `each` of its utterances, by the independent encoder."""
    total = torch.zeros(len(c.voices), 256, device=c.device)
    who = c.voice.cpu().numpy()
    order = np.argsort(who, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(who[order], who[order])
    ids = torch.from_numpy(order[rank < each]).to(c.device)
    for part in ids.split(batch):
        total.index_add_(0, c.voice[part], encoder(c.wave16(part, 3 * data.RATE_HZ, wrap=True)))
    return F.normalize(total, dim=-1)


@torch.no_grad()
def embed(net, c: data.Corpus, ids, noisy=False) -> Tensor:
    """(n, 192), one utterance at a time, as inference does it."""
    out = []
    for k in ids:
        t = torch.tensor([k], device=c.device)
        wave = c.wave16(t, int(c.samples[k]))
        out.append(net(kaldi_fbank(augment.channel(wave, share=1.0) if noisy else wave))[0])
    return torch.stack(out)


def equal_error(score, same) -> float:
    """Equal error rate of a verification score."""
    same = np.asarray(same, bool)[np.argsort(-np.asarray(score))]
    missed = 1 - np.cumsum(same) / same.sum()
    accepted = np.cumsum(~same) / (~same).sum()
    k = int(np.argmin(np.abs(missed - accepted)))
    return float((missed[k] + accepted[k]) / 2)


def spearman(a, b) -> float:
    """Rank correlation."""
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def unit_means(e: Tensor, who: np.ndarray) -> Tensor:
    """(voices, D) normalised mean of normalised vectors, voices in sorted order."""
    e = F.normalize(e)
    return F.normalize(torch.stack([e[who == k].mean(0) for k in np.unique(who)]))


@torch.no_grad()
def gates(net, head, c: data.Corpus, target: Tensor, encoder: IndependentEncoder | None, limit=10) -> dict:
    """Equal error rate, regression of the teacher's space, and how the ranking of voice pairs agrees."""
    ids = np.nonzero(c.seconds > 1.5)[0]
    who = c.voice.cpu().numpy()
    ids = np.array([k for v in np.unique(who) for k in ids[who[ids] == v][:limit]])
    who = who[ids]
    upper = np.triu_indices(len(ids), 1)
    same = who[upper[0]] == who[upper[1]]
    result, e = {"voices": len(np.unique(who)), "trials": len(same), "same_trials": int(same.sum())}, {}
    torch.manual_seed(5)
    for name in ("clean", "noisy"):
        e[name] = embed(net, c, ids, name == "noisy")
        unit = F.normalize(e[name])
        score = (unit @ unit.T).cpu().numpy()[upper]
        result[f"eer_{name}"] = equal_error(score, same)
        result[f"cosine_same_{name}"], result[f"cosine_other_{name}"] = score[same].mean(), score[~same].mean()
    score = (F.normalize(e["clean"]) @ F.normalize(e["noisy"]).T).cpu().numpy()
    off = ~np.eye(len(ids), dtype=bool)
    result["eer_clean_against_noisy"] = equal_error(score[off], (who[:, None] == who[None])[off])
    truth, guess = target[who], head(e["clean"])
    for k, name in ((0, "axis1"), (1, "axis2"), (-1, "shift")):
        result[f"r2_{name}"] = 1 - ((guess[:, k] - truth[:, k]) ** 2).mean() / truth[:, k].var()
    pairs = np.triu_indices(len(np.unique(who)), 1)
    mine = unit_means(e["clean"], who)
    mine = (mine @ mine.T).cpu().numpy()[pairs]
    space = torch.stack([target[k] for k in np.unique(who)])
    # all axes have unit spread here, which gives the small ones too much weight: the first ones and the shift
    space = torch.cat([space[:, :AUDIBLE_AXES], space[:, -1:]], 1)
    result["spearman_with_teacher_space"] = spearman(mine, -torch.cdist(space, space).cpu().numpy()[pairs])
    if encoder:
        other = torch.cat([encoder(c.wave16(torch.tensor([k], device=c.device), int(c.samples[k]))) for k in ids])
        unit = F.normalize(other)
        result["independent_eer"] = equal_error((unit @ unit.T).cpu().numpy()[upper], same)
        other = unit_means(other, who)
        result["spearman_with_independent"] = spearman(mine, (other @ other.T).cpu().numpy()[pairs])
    return {k: v if isinstance(v, int) else float(v) for k, v in result.items()}


@torch.no_grad()
def outside_gate(net, encoder: IndependentEncoder, path, device) -> dict:
    """Over pairs of clips of voices from outside: Spearman with the independent encoder, and both equal error rates."""
    mine, other, who = [], [], []
    for clip in outside_file.read(path):
        if len(clip.wave) > 1.5 * 16000:
            wave = torch.from_numpy(clip.wave).to(device)[None]
            mine.append(net(kaldi_fbank(wave))[0])
            other.append(encoder(wave)[0])
            who.append(clip.voice)
    mine, other, who = F.normalize(torch.stack(mine)), torch.stack(other), np.array(who)
    upper = np.triu_indices(len(who), 1)
    same = who[upper[0]] == who[upper[1]]
    a, b = (mine @ mine.T).cpu().numpy()[upper], (other @ other.T).cpu().numpy()[upper]
    return {
        "outside_eer": equal_error(a, same),
        "outside_independent_eer": equal_error(b, same),
        "outside_spearman_of_clips": spearman(a, b),
        "outside_spearman_of_other_voices": spearman(a[~same], b[~same]),
    }


class Crops:
    """Random crops of the corpus, with some of the guests'."""

    def __init__(self, c: data.Corpus, guests: data.Corpus | None, batch: int, warp: float, longest_s: float):
        self.c, self.guests, self.warp, self.longest_s = c, guests, warp, longest_s
        self.guest_rows = batch // 10 if guests else 0
        self.rows = batch - self.guest_rows
        self.rng = np.random.default_rng(int(time.time()))

    def _from(self, c: data.Corpus, rows: int, n: int, warped: float):
        ids = torch.randint(len(c.items), (rows,), device=c.device)
        skip = (torch.rand(rows, device=c.device) * c.n[ids]).long()
        rate = None
        if self.warp:
            chosen = (torch.rand(rows, device=c.device) < warped).float()
            rate = torch.exp((torch.rand(rows, device=c.device) * 2 - 1) * self.warp * chosen)
        return ids, c.wave16(ids, n, skip=skip, wrap=True, rate=rate), rate

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Waves at 16 kHz (B, N), the guests' last; utterances and rates (1 = as it is) of the corpus's rows."""
        n = int(self.rng.uniform(min(1.5, self.longest_s), self.longest_s) * 25) * 960
        ids, wave, rate = self._from(self.c, self.rows, n, 1 / 3)
        rate = torch.ones(self.rows, device=wave.device) if rate is None else rate
        if self.guests:
            wave = torch.cat([wave, self._from(self.guests, self.guest_rows, n, 0.8)[1]])
        return wave, ids, rate


def main():
    ap = schedule.arguments(__doc__, seconds=400, rate=2e-3)
    ap.add_argument("--guests", help="folder of guests.py: a tenth of the crops, for the independent distance only")
    ap.add_argument("--independent", help="weights packed by independent.py; without it, no distance loss")
    ap.add_argument("--outside", help="outside.npz")
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--longest", type=float, default=5.0, help="seconds of a crop, at most")
    ap.add_argument("--warp", type=float, default=0, help="a third of the crops plays up to exp(+-this) faster, higher")
    a = ap.parse_args()
    device, out = torch.device(a.device), Path(a.out)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # features need full float32
    torch.manual_seed(2)
    log = schedule.Log(out / "speaker.log")
    c, d = data.Corpus(a.train, device, a.hours), data.Corpus([a.dev], device)
    guests = data.Corpus([a.guests], device) if a.guests else None
    encoder = IndependentEncoder(a.independent).to(device) if a.independent else None
    z, basis = data.voice_targets(c.style, c.shift)
    zd, _ = data.voice_targets(d.style, d.shift, basis)
    target, target_dev = torch.from_numpy(z).to(device), torch.from_numpy(zd).to(device)
    net = front_end.SpeakerEncoder().to(device)
    head = torch.nn.Linear(front_end.EMBEDDING_WIDTH, target.shape[1]).to(device)
    pointer = torch.nn.Linear(front_end.EMBEDDING_WIDTH, 256).to(device)
    classes = torch.nn.Linear(front_end.EMBEDDING_WIDTH, len(c.voices), bias=False).to(device)
    torch.nn.init.normal_(classes.weight)
    modules = {"speaker": net, "head": head, "pointer": pointer, "classes": classes}
    if a.resume:
        schedule.load(a.resume, modules, strict=False)
    everything = torch.nn.ModuleList(modules.values())
    optimiser = torch.optim.AdamW(everything.parameters(), a.rate, weight_decay=0.02, fused=device.type == "cuda")
    average = schedule.Average(everything)
    amp = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    hours = float(c.seconds.sum() / 3600)
    log(note="loaded", hours=hours, utterances=len(c.items), parameters=schedule.parameters(net))
    means = voice_means(encoder, c) if encoder else None
    log(note="voice means")
    crops = Crops(c, guests, a.batch, a.warp, a.longest)
    weight = torch.ones(target.shape[1], device=device)
    weight[:AUDIBLE_AXES], weight[-1] = 3, 6
    weight /= weight.sum()
    off = ~torch.eye(a.batch, dtype=torch.bool, device=device)
    clock = schedule.Clock(a.seconds, a.steps)
    while clock.progress() < 1:
        for group in optimiser.param_groups:
            group["lr"] = clock.rate(a.rate)
        wave, ids, rate = crops.draw()
        y, plain = c.voice[ids], rate == 1
        goal = target[y]
        goal[:, -1] += torch.log(rate) / data.SHIFT_SPREAD
        feats = kaldi_fbank(augment.channel(wave))
        with amp:
            e = net(feats)
        e = e.float()
        mine = e[: len(ids)]
        margin, hit = angular_margin(mine, classes.weight, y, 30.0, 0.2 * min(1.0, clock.progress() / 0.3))
        part = {
            "angular": (margin * plain).sum() / plain.sum(),
            "regression": (((head(mine) - goal) ** 2) * weight).sum(1).mean(),
        }
        total = (0.3 if encoder else 1.0) * part["angular"] + 2 * part["regression"]
        if encoder:
            heard = encoder(wave)
            heard[: len(ids)] = torch.where(plain[:, None], means[y], heard[: len(ids)])
            unit = F.normalize(e)
            wanted, got = wanted_cosine(heard @ heard.T), unit @ unit.T
            part["distance"] = ((got - wanted)[off] ** 2).mean()
            part["pointing"] = (1 - F.cosine_similarity(pointer(e), heard - means.mean(0))).mean()
            total = total + 20 * part["distance"] + 2 * part["pointing"]
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(everything.parameters(), 2.0)
        optimiser.step()
        average.update()
        clock.step += 1
        log.add({**part, "accuracy": (hit * plain).sum() / plain.sum()})
        if clock.step % 200 == 0 or clock.step == 20:
            log.means(step=clock.step, rate=optimiser.param_groups[0]["lr"])
    average.apply()
    for module in net.modules():  # statistics that fit the averaged weights
        if isinstance(module, torch.nn.BatchNorm1d):
            module.reset_running_stats()
            module.momentum = None
    with torch.no_grad():
        for _ in range(60 if device.type == "cuda" else 3):
            net(kaldi_fbank(augment.channel(crops.draw()[0])))
    net.eval()
    for module in everything:
        schedule.round_to_half(module)
    schedule.save(out / "speaker.safetensors", modules, steps=clock.step, voices=[str(v) for v in c.voices])
    result = {
        "steps": clock.step, "seconds": round(clock.elapsed_s()), "hours": round(hours, 2),
        "parameters": schedule.parameters(net), "dev_utterances": len(d.items),
    }  # fmt: skip
    result |= gates(net, head, d, target_dev, encoder)
    if a.outside and encoder:
        result |= outside_gate(net, encoder, a.outside, device)
    (out / "speaker.json").write_text(json.dumps(result, indent=1))
    log(note="done", **result)


if __name__ == "__main__":
    main()
