"""The published releases: where they are and which files this program needs of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogEntry:
    """id: what one types. folder: under pretrained_models/. repos: per source. files: patterns to download.
    size_gb: what these files take on disk, from parameter counts (fp32)."""

    id: str
    title: str
    folder: str
    repos: dict[str, str]
    files: tuple[str, ...]
    size_gb: float


BODY = ("CosyVoice-BlankEN/*.json", "CosyVoice-BlankEN/*.txt")  # not its model.safetensors: llm.pt holds those weights

CATALOG = {
    entry.id: entry
    for entry in (
        CatalogEntry(
            "v2",
            "CosyVoice2-0.5B",
            "CosyVoice2-0.5B",
            {"huggingface": "FunAudioLLM/CosyVoice2-0.5B", "modelscope": "iic/CosyVoice2-0.5B"},
            ("cosyvoice*.yaml", "llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v2.onnx", *BODY),
            3.1,
        ),
        CatalogEntry(
            "v3",
            "Fun-CosyVoice3-0.5B-2512",
            "Fun-CosyVoice3-0.5B",
            {
                "huggingface": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
                "modelscope": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
            },
            ("cosyvoice3.yaml", "llm*.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v3.onnx", *BODY),
            6.5,
        ),
    )
}
