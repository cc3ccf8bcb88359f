"""Makes an untrained model folder of a few MB: every stage real, the weights random from a seed. It speaks noise.

python -m tools.miniature.make OUT --speech-tokenizer T.onnx --speaker-encoder S.onnx
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch

from cosy_engine.flow import build_flow
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.settings.model_spec import (
    ConformerSpec,
    DiTSpec,
    FlowSpec,
    HiftSpec,
    LlmSpec,
    LookaheadSpec,
    MelSpec,
    ModelSpec,
    UNetSpec,
)
from cosy_engine.text.tokenizer import TextTokenizer
from cosy_engine.vocoder import build_vocoder
from tools.miniature.release import llm_state, save_state, write_config
from tools.miniature.tokenizer import make_tiny_tokenizer

NOTE = (
    "This is the untrained miniature: random weights, so it makes noise, not speech. "
    "For speech, fetch a release: ./run.sh fetch v3"
)


def small_spec(version: str, text_vocab: int, speech_tokens: int = 6561) -> ModelSpec:
    """Both families at a size that a CPU runs faster than real time."""
    make = LlmSpec.v2 if version == "v2" else LlmSpec.v3
    llm = make(
        text_vocab=text_vocab, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn_width=128, speech_tokens=speech_tokens
    )  # fmt: skip
    if version == "v2":
        front, estimator = ConformerSpec(64, 4, 96, 1), UNetSpec(64, 16, 2, 1, 1)
        flow = FlowSpec(front, estimator, speech_tokens=speech_tokens, input_width=64)
    else:
        flow = FlowSpec(LookaheadSpec(96), DiTSpec(64, 2, 4, 16, 2), speech_tokens=speech_tokens, input_width=80)
    hift = HiftSpec(causal=version == "v3", base_channels=32, f0_channels=32)
    mel = MelSpec(fmax_hz=8000.0 if version == "v2" else None)
    name = "CosyVoice2" if version == "v2" else "Fun-CosyVoice3"
    return ModelSpec(name, llm, flow, hift, mel, text_tokens=version, needs_prefix=version == "v3")


def random_models(spec: ModelSpec, seed: int) -> tuple[SpeechLM, torch.nn.Module, torch.nn.Module]:
    """LM, flow and vocoder with random weights; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        lm, flow = SpeechLM(spec.llm), build_flow(spec.flow)
        vocoder = build_vocoder(spec.vocoder, weight_norm=True)
    with torch.no_grad():
        # One constant feature in what the LM reads, and an end mark that answers to it a little more strongly than the
        # best of the 6561 codes do on average: runs end some 25 tokens after their minimum length.
        lm.speech_embedding.weight[:, 0] = 3.0
        lm.backbone.embed_tokens.weight[:, 0] = 3.0
        lm.llm_decoder.weight.mul_(0.3)
        lm.llm_decoder.weight[spec.llm.eos_id] = 0.0
        lm.llm_decoder.weight[spec.llm.eos_id, 0] = 0.18
        lm.llm_decoder.weight[spec.llm.speech_tokens :, 1:] = 0.0
    return lm, flow, vocoder


def make(
    folder: Path, version: str, speech_tokenizer: Path, speaker_encoder: Path, seed: int = 0, name: str = ""
) -> Path:
    """Write the folder; existing files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tiny_tokenizer(folder / "CosyVoice-BlankEN")
    tokens = TextTokenizer(folder / "CosyVoice-BlankEN", version)
    spec = small_spec(version, tokens.size)
    write_config(folder, spec)
    lm, flow, vocoder = random_models(spec, seed)
    save_state(llm_state(lm), folder / "llm.pt")
    save_state(flow.state_dict(), folder / "flow.pt")
    save_state(vocoder.state_dict(), folder / "hift.pt")
    shutil.copyfile(speech_tokenizer, folder / f"speech_tokenizer_{version}.onnx")
    shutil.copyfile(speaker_encoder, folder / "campplus.onnx")
    card = {"name": name or f"miniature ({spec.name} layout, untrained)", "trained": False, "note": NOTE}
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--version", choices=("v2", "v3"), default="v3")
    parser.add_argument("--speech-tokenizer", type=Path, required=True)
    parser.add_argument("--speaker-encoder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(make(arguments.out, arguments.version, arguments.speech_tokenizer, arguments.speaker_encoder, arguments.seed))


if __name__ == "__main__":
    main()
