"""Put the trained parts together as a model folder in the published v3 layout: int8 rows, the vocoder in half precision.

python -m tools.demo_model.assemble OUT --lm lm.safetensors --flow flow.safetensors --text CosyVoice-BlankEN
    [--vocoder assets/demo_voice/hift.pt] [--front-end assets/demo_voice]
"""

import argparse
import json
import shutil
from pathlib import Path

from cosy_engine.flow import build_flow
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.model_files.layout import find_release
from cosy_engine.model_files.weights import in_int8_rows
from cosy_engine.text.tokenizer import TextTokenizer
from cosy_engine.vocoder import build_vocoder
from tools.demo_model import codes, schedule, sizes
from tools.miniature.release import llm_state, save_state, write_config

NAME = "small English demo voice"
NOTE = "A small English demo voice, trained on synthetic speech; for full quality: ./run.sh fetch v3"


def assemble(out: Path, lm: Path, flow: Path, vocoder: Path, front_end: Path, text: Path) -> Path:
    """Write the folder; returns it. The loader's own check is run at the end."""
    body = out / "CosyVoice-BlankEN"
    body.mkdir(parents=True, exist_ok=True)
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(text / name, body / name)
    spec = sizes.model_spec(TextTokenizer(body, "v3").size)
    write_config(out, spec)
    networks = {
        "lm": (lm, SpeechLM(spec.llm)),
        "flow": (flow, build_flow(spec.flow)),
        "vocoder": (vocoder, build_vocoder(spec.vocoder, weight_norm=True)),
    }
    for name, (path, net) in networks.items():
        schedule.load(path, {name: net})
    save_state(in_int8_rows(llm_state(networks["lm"][1])), out / "llm.pt")
    save_state(in_int8_rows(networks["flow"][1].state_dict()), out / "flow.pt")
    save_state(networks["vocoder"][1].state_dict(), out / "hift.pt")
    shutil.copyfile(front_end / "speech_tokenizer_v3.onnx", out / "speech_tokenizer_v3.onnx")
    shutil.copyfile(front_end / "campplus.onnx", out / "campplus.onnx")
    card = {"name": NAME, "trained": True, "note": NOTE, "languages": ["en"]}
    card |= {"instructions": False, "tags": False, "capitals": False, "joins_sentences": False}  # not taught
    card |= {"short_texts": True}  # measured
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    find_release(out)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path)
    ap.add_argument("--lm", type=Path, required=True)
    ap.add_argument("--flow", type=Path, required=True)
    ap.add_argument("--vocoder", type=Path, default=codes.DEMO_VOICE / "hift.pt")
    ap.add_argument("--front-end", type=Path, default=codes.DEMO_VOICE, help="folder of the two ONNX files")
    ap.add_argument("--text", type=Path, required=True)
    a = ap.parse_args()
    print(assemble(a.out, a.lm, a.flow, a.vocoder, a.front_end, a.text))


if __name__ == "__main__":
    main()
