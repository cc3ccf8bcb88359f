"""Train the vocoder: first with spectral losses only, then with discriminators.

    python -m tools.demo_model.train_vocoder --train c/0 c/1 c/2 --dev c/dev --out out --seconds 540 --plain-seconds 110
        [--resume vocoder.safetensors]

Multi-resolution STFT and log-mel distances; the pitch predictor learns the teacher's own pitch. The source gets the
predicted pitch (in three of ten segments the teacher's). Steps are small (32 segments of 0.64 s) and many: a whole step,
data included, is one CUDA graph. Writes vocoder.safetensors (average weights; names prefixed `vocoder.`, and with
`discriminators.` what the next run resumes from), vocoder.json, and vocoder_dev.npy/json: copy synthesis of dev clips,
16-bit, for listening and for a quality score.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from cosy_engine.audio.features import flow_mel, mel_filters
from cosy_engine.settings.model_spec import HiftSpec, MelSpec
from cosy_engine.vocoder import Hift
from tools.demo_model import cuda_graph, data, discriminators, schedule
from tools.demo_model.fast_vocoder import slow_down, speed_up
from tools.demo_model.flow_mels import MadeMels

MEL = MelSpec()
MEL_WEIGHT, FEATURE_WEIGHT = 45.0, 2.0


class LogMel(nn.Module):
    """Log-mel at any resolution, its tables on the device (a captured graph may not copy from the host).

    With the default sizes it is cosy_engine.audio.features.flow_mel (tests/tools).
    """

    def __init__(self, n_fft=MEL.n_fft, hop=MEL.hop_samples, bins=MEL.bins):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        filters = mel_filters(MEL.rate_hz, n_fft, bins, MEL.fmin_hz, MEL.fmax_hz)
        self.register_buffer("filters", filters.clone(), persistent=False)
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)

    def forward(self, wave: Tensor) -> Tensor:
        """(B, N) -> (B, bins, N // hop)."""
        edge = (self.n_fft - self.hop) // 2
        wave = nn.functional.pad(wave[:, None], (edge, edge), mode="reflect")[:, 0]
        s = torch.stft(wave, self.n_fft, self.hop, window=self.window, center=False, return_complex=True)
        return torch.log((self.filters @ torch.sqrt(s.real**2 + s.imag**2 + 1e-9)).clamp(min=1e-5))


class SpectralLoss(nn.Module):
    """Spectral convergence plus log-magnitude distance, mean over resolutions."""

    def __init__(self, sizes=(256, 512, 1024, 2048)):
        super().__init__()
        self.sizes = sizes
        for n in sizes:
            self.register_buffer(f"window{n}", torch.hann_window(n), persistent=False)

    def forward(self, made: Tensor, true: Tensor) -> Tensor:
        total = 0
        for n in self.sizes:
            window = getattr(self, f"window{n}")
            spectra = (torch.stft(w, n, n // 4, window=window, return_complex=True) for w in (made, true))
            a, b = (torch.sqrt(s.real**2 + s.imag**2 + 1e-8) for s in spectra)
            norm = torch.linalg.norm(b, dim=(1, 2)) + 1e-2
            total = (
                total
                + (torch.linalg.norm(b - a, dim=(1, 2)) / norm).mean()
                + (torch.log(a) - torch.log(b)).abs().mean()
            )
        return total / len(self.sizes)


class Segments:
    """Random segments of the corpus; only device operations, so that a graph can hold them."""

    def __init__(self, c: data.Corpus, batch: int, frames: int, made: MadeMels | None = None):
        """made: use the flow's mels (half of the rows) and the true ones (the other half) of these utterances."""
        self.c, self.batch, self.frames, self.made = c, batch, frames, made
        self.mel = LogMel().to(c.device)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """mel (B, 80, F), wave (B, 480 F), pitch (B, F) in Hz, 0 unvoiced."""
        c, frames, made = self.c, self.frames, self.made
        if made:
            row = torch.randint(len(made.utterance), (self.batch,), device=c.device)
            ids, length = made.utterance[row], made.frames[row]
        else:
            ids = torch.randint(len(c.items), (self.batch,), device=c.device)
            length = c.n[ids] // MEL.hop_samples
        room = (length - frames - 4).clamp(min=1)
        first = (torch.rand(self.batch, device=c.device) * room).long()
        wide = c.wave(ids, (frames + 4) * MEL.hop_samples, first * MEL.hop_samples)
        k = first[:, None] + 2 + torch.arange(frames, device=c.device)[None]
        mel = self.mel(wide)[:, :, 2:-2]
        if made:
            at = made.start[row][:, None] + torch.minimum(k, length[:, None] - 1)
            other = made.mel[at].float().transpose(1, 2)
            mel = torch.where(torch.rand(self.batch, 1, 1, device=c.device) < 0.5, other, mel)
        edge = 2 * MEL.hop_samples
        return mel, wide[:, edge:-edge], c.grid(c.pitch_hz, ids, 4 * k + 2, 0).float()


class Training:
    """Networks, optimisers and the two kinds of step."""

    def __init__(self, net: Hift, critic: discriminators.Discriminators, segments: Segments, rate: float):
        self.net, self.critic, self.segments = net, critic, segments
        self.device = segments.c.device
        options = {"betas": (0.8, 0.99), "weight_decay": 0.01}
        self.optimiser, self.rate = cuda_graph.optimiser(net, rate, **options)
        self.critic_optimiser, self.critic_rate = cuda_graph.optimiser(critic, rate, **options)
        self.average = cuda_graph.DeviceAverage(net, 0.999)
        self.spectral = SpectralLoss().to(self.device)
        sizes = ((MEL.n_fft, MEL.hop_samples, 80), (1024, 256, 80), (512, 128, 40))
        self.mels = nn.ModuleList(LogMel(*s) for s in sizes).to(self.device)

    def set(self, rate: float, step: int) -> None:
        """What changes from step to step."""
        self.rate.fill_(rate)
        self.critic_rate.fill_(rate)
        self.average.set_step(step)

    def judged(self, wave: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.critic(wave)

    def made(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Made and true waveform, and the losses that need no discriminator."""
        mel, wave, hz = self.segments.draw()
        guess = self.net.f0_predictor(mel)
        told = torch.rand(len(hz), 1, device=self.device) < 0.3
        noise = torch.randn(*wave.shape, self.net.m_source.harmonics, device=self.device)
        made = self.net.decode(mel, self.net.m_source(torch.where(told, hz, guess.detach()), noise))
        part = {
            "mel": sum((f(made) - f(wave)).abs().mean() for f in self.mels) / len(self.mels),
            "stft": self.spectral(made, wave),
            "f0": (guess - hz).abs().mean() / 100,
        }
        return made, wave, part

    def descend(self, loss: Tensor) -> Tensor:
        """One step of the vocoder and of its average; returns the gradient's norm."""
        norm = cuda_graph.descend(self.optimiser, self.net, loss, 5.0)
        self.average.update()
        return norm

    def plain_step(self) -> dict[str, Tensor]:
        _, _, part = self.made()
        norm = self.descend(part["mel"] + part["stft"] + part["f0"])
        return {k: v.detach() for k, v in part.items()} | {"norm": norm}

    def adversarial_step(self) -> dict[str, Tensor]:
        made, wave, part = self.made()
        self.critic.requires_grad_(True)
        real, truth = self.judged(wave)
        part["critic"] = discriminators.discriminator_loss(real, self.judged(made.detach())[0])
        cuda_graph.descend(self.critic_optimiser, self.critic, part["critic"], 5.0)
        self.critic.requires_grad_(False)
        fake, features = self.judged(made)
        part["adversarial"] = discriminators.generator_loss(fake)
        part["features"] = discriminators.feature_loss(truth, features)
        total = part["adversarial"] + FEATURE_WEIGHT * part["features"] + MEL_WEIGHT * part["mel"]
        norm = self.descend((total + 10 * part["stft"] + 10 * part["f0"]) / MEL_WEIGHT)
        return {k: v.detach() for k, v in part.items()} | {"norm": norm}


@torch.no_grad()
def gates(net: Hift, d: data.Corpus, limit: int = 60) -> tuple[dict, np.ndarray, list[np.ndarray]]:
    """Copy synthesis of whole dev clips in full precision: mel L1, pitch error, voicing; the waves as int16."""
    torch.manual_seed(5)
    far, off_hz, voicing, waves = [], [], [], []
    ids = np.random.default_rng(3).permutation(len(d.items))[:limit]
    for k in ids:
        t = torch.tensor([int(k)], device=d.device)
        frames = int(d.samples[k]) // MEL.hop_samples
        wave = d.wave(t, frames * MEL.hop_samples)
        mel = flow_mel(wave, MEL).transpose(1, 2)
        hz = net.f0_predictor(mel)
        noise = torch.randn(1, frames * MEL.hop_samples, net.m_source.harmonics, device=d.device)
        made = net.decode(mel, net.m_source(hz, noise))
        far.append((flow_mel(made, MEL).transpose(1, 2) - mel).abs().mean().item())
        true_hz = d.grid(d.pitch_hz, t, torch.arange(frames, device=d.device)[None] * 4 + 2, 0).float()
        voiced = true_hz > 0
        voicing.append(((hz > 30) == voiced).float().mean().item())
        off_hz.append((hz - true_hz).abs()[voiced].mean().item())
        waves.append((made[0].clamp(-1, 1).cpu().numpy() * 32767).astype(np.int16))
    result = {"mel_l1": np.mean(far), "f0_error_hz": np.nanmean(off_hz), "voicing_accuracy": np.mean(voicing)}
    return {k: float(v) for k, v in result.items()}, ids, waves


def main():
    ap = schedule.arguments(__doc__, seconds=540, rate=5e-4)
    ap.add_argument("--plain-seconds", type=float, default=110, help="of --seconds, without discriminators")
    ap.add_argument("--plain-steps", type=int, default=10**9, help="at most so many steps without (tests)")
    ap.add_argument("--critic-rate", type=float, default=3e-4, help="highest rate of both in the second stage")
    ap.add_argument("--base", type=int, default=192, help="channels before the first upsampling")
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--mels", help="flow_mels.npz of --train: half of the segments start from the flow's mel")
    ap.add_argument("--gate-clips", type=int, default=60)
    ap.add_argument("--eager", action="store_true", help="no CUDA graph")
    ap.add_argument("--frames", type=int, default=32, help="mel frames of a segment")
    a = ap.parse_args()
    device, out = torch.device(a.device), Path(a.out)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
    torch.backends.cudnn.benchmark = True  # shapes never change in training
    torch.manual_seed(3 + int(time.time()) % 1000)
    log = schedule.Log(out / "vocoder.log")
    c, d = data.Corpus(a.train, device, a.hours), data.Corpus([a.dev], device)
    spec = HiftSpec(causal=False, base_channels=a.base, f0_channels=a.base)
    net, critic = Hift(spec, weight_norm=True).to(device), discriminators.Discriminators().to(device)
    if device.type == "cuda":
        speed_up(net)
    if a.resume:
        schedule.load(a.resume, {"vocoder": net, "discriminators": critic}, strict=False)
    made = MadeMels.read(a.mels, device) if a.mels else None
    training = Training(net, critic, Segments(c, a.batch, a.frames, made), a.rate)
    sizes = {"parameters": schedule.parameters(net), "critic": schedule.parameters(critic)}
    log(note="loaded", hours=c.seconds.sum() / 3600, utterances=len(c.items), **sizes)
    clock, plain, step, plain_steps = schedule.Clock(a.seconds, a.steps), None, None, 0
    while clock.progress() < 1:
        want_plain = clock.elapsed_s() < a.plain_seconds and clock.step < a.plain_steps
        if plain is not want_plain:
            plain, step = want_plain, None
            training.set(clock.rate(a.rate if plain else a.critic_rate), clock.step)
            step = training.plain_step if plain else training.adversarial_step
            step = step if a.eager else cuda_graph.captured(step)
            log(note="plain" if plain else "adversarial", step=clock.step)
            log.since = time.time()
        training.set(clock.rate(a.rate if plain else a.critic_rate), clock.step)
        log.add(step())
        clock.step += 1
        plain_steps += plain
        if clock.step % 500 == 0 or clock.step == 20:
            log.means(step=clock.step, rate=training.rate)
    training.average.apply()
    slow_down(net).eval()
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = False, False
    schedule.round_to_half(net)
    facts = {"base": a.base, "causal": False, "steps": clock.step, "plain_steps": plain_steps}
    schedule.save(out / "vocoder.safetensors", {"vocoder": net, "discriminators": critic}, half=True, **facts)
    result, ids, waves = gates(net, d, a.gate_clips)
    result = facts | {"seconds": round(clock.elapsed_s())} | sizes | result
    (out / "vocoder.json").write_text(json.dumps(result, indent=1))
    keep, total = [], 0
    for k, wave in zip(ids, waves, strict=True):
        total += len(wave)
        if total > 7_000_000:
            break
        row = d.items[k]
        keep.append({"length": len(wave), "speaker": row["speaker"], "text": row["text"]})
    np.save(out / "vocoder_dev.npy", np.concatenate(waves[: len(keep)]))
    (out / "vocoder_dev.json").write_text(json.dumps(keep))
    log(note="done", **result)


if __name__ == "__main__":
    main()
