"""What others report for CosyVoice 2 and 3, with the place where they report it, so that "normal" has a meaning.

One stream at a time. Machines, texts and definitions differ: a figure is a mark of its class of machine and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

COSYVOICE = "https://github.com/FunAudioLLM/CosyVoice"


@dataclass(frozen=True)
class Anchor:
    """card, host: the machine as the source names it. how: model and way of running. ms_per_token, rtf, first_s: low and
    high of what is reported, None where it is not. rtf: compute / audio. ours: measured with this program's own tools."""

    card: str
    how: str
    source: str
    host: str = ""
    ms_per_token: tuple[float, float] | None = None
    rtf: tuple[float, float] | None = None
    first_s: tuple[float, float] | None = None
    link: str = ""
    ours: bool = False


def _issue(number: int) -> dict[str, str]:
    return {"source": f"CosyVoice issue {number}", "link": f"{COSYVOICE}/issues/{number}"}


_WINDOWS = {"card": "RTX 4090", "host": "Windows Server (WDDM), 2 x Xeon E5-2697 v4", **_issue(1927)}
_OFFICIAL = {"card": "H200", "source": "measured by us, official code, random weights", "ours": True}
_OWN = {"card": "H200", "source": "bench/results/h200-v3-fp16.json, random weights", "ours": True}

ANCHORS: tuple[Anchor, ...] = (
    Anchor(how="v3 eager fp16", ms_per_token=(67, 67), rtf=(2.43, 3.28), **_WINDOWS),
    Anchor(how="v3 eager fp32", ms_per_token=(110, 110), rtf=(1.44, 1.57), **_WINDOWS),
    Anchor(how="v3 CUDA Graph fp16", ms_per_token=(17, 28), rtf=(0.76, 0.95), **_WINDOWS),
    Anchor("RTX 3090", "v3 eager, streamed", "vc.ru article 2657246", ms_per_token=(62, 62), rtf=(1.5, 1.5), first_s=(2.2, 2.2)),
    Anchor("RTX 3090", "v3 plain, streamed", "FastCosyVoice README", "Ryzen 7 3700X, WSL", rtf=(0.93, 0.93), first_s=(1.77, 1.77)),
    Anchor("RTX 3090", "v3 fp16, TensorRT flow, torch.compile, streamed", "FastCosyVoice README", "Ryzen 7 3700X, WSL",
           rtf=(0.44, 0.44), first_s=(0.8, 0.8)),
    Anchor("RTX 3090", "v3 fp16, TensorRT flow, TensorRT-LLM, streamed", "FastCosyVoice README", "Ryzen 7 3700X, WSL",
           rtf=(0.245, 0.245), first_s=(0.47, 0.47)),
    Anchor("RTX 5060 Ti", "v3 plain, streamed", "FastCosyVoice README", "Ryzen 9 7900, Linux", rtf=(0.548, 0.548), first_s=(0.72, 0.72)),
    Anchor("RTX 5060 Ti", "v3 torch.compile, streamed", "FastCosyVoice README", "Ryzen 9 7900, Linux", rtf=(0.215, 0.215),
           first_s=(0.36, 0.36)),
    Anchor("RTX 5070", "v3 bf16, decode graph", "sglang-omni pull request 1669", ms_per_token=(3.62, 5.10), rtf=(0.19, 0.233)),
    Anchor("L20", "v3 TensorRT-LLM and TensorRT flow, batch 1", "CosyVoice pull request 1850", ms_per_token=(2.96, 2.96),
           rtf=(0.109, 0.109), link=f"{COSYVOICE}/pull/1850"),
    Anchor("H100", "v3 vllm-omni, TensorRT and decode graphs", "vllm-omni pull request 4168", rtf=(0.12, 0.12), first_s=(0.209, 0.209)),
    Anchor("L20", "v2 plain transformers, batch 1", "CosyVoice Triton notes", ms_per_token=(8.8, 8.8), rtf=(0.249, 0.249)),
    Anchor("L20", "v2 TensorRT-LLM, batch 1", "CosyVoice Triton notes", ms_per_token=(2.8, 2.8), rtf=(0.099, 0.099)),
    Anchor("H800", "v2 eager fp32", "FlashCosyVoice README", rtf=(0.487, 0.487)),
    Anchor("H800", "v2 eager fp16", "FlashCosyVoice README", rtf=(0.554, 0.554)),
    Anchor("RTX 4060 Ti", "v2 eager", "async_cosyvoice issue 41", rtf=(0.3, 0.5)),
    Anchor("RTX 3060", "v2 eager", "async_cosyvoice issue 41", rtf=(1.0, 1.5)),
    Anchor("RTX 4070", "v2 vLLM and TensorRT", "async_cosyvoice README", "i5-12400", rtf=(0.10, 0.15), first_s=(0.15, 0.25)),
    Anchor(card="RTX 2080 Ti", how="v2 TensorRT", rtf=(0.6, 1.0), **_issue(1237)),
    Anchor("CPU", "v3 on a CPU, not stated which", "VoiceStudio pull request 2258", rtf=(3.2, 3.2)),
    Anchor(how="v3 eager fp32", ms_per_token=(21.6, 21.6), rtf=(0.54, 0.54), first_s=(2.17, 2.17), **_OFFICIAL),
    Anchor(how="v3 eager fp16 (autocast)", ms_per_token=(21, 57), rtf=(1.59, 1.59), first_s=(2.52, 2.52), **_OFFICIAL),
    Anchor(how="v3 CUDA Graph fp16, this program", ms_per_token=(1.46, 1.46), rtf=(0.042, 0.042), first_s=(0.075, 0.075), **_OWN),
    Anchor(how="v3 fused fp16, this program", ms_per_token=(0.45, 0.45), rtf=(0.014, 0.014), first_s=(0.030, 0.030), **_OWN),
    Anchor(how="v2 eager fp32", ms_per_token=(22.7, 22.7), rtf=(0.69, 0.69), first_s=(1.41, 1.41), **_OFFICIAL),
)  # fmt: skip
