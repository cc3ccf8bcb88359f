"""Which release lies in a folder, what is missing, and its sizes as a ModelSpec. Sizes come from files, never assumed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosy_engine.errors import ModelFilesError
from cosy_engine.model_files.weights import check_file, fetch_command
from cosy_engine.model_files.yaml_data import TAG, read_yaml
from cosy_engine.settings.model_spec import (
    ConformerSpec,
    DiTSpec,
    FlowSpec,
    HiftSpec,
    LlmSpec,
    LookaheadSpec,
    MelSpec,
    ModelSpec,
    SamplingSpec,
    UNetSpec,
)

YAML_NAMES = ("cosyvoice3.yaml", "cosyvoice2.yaml", "cosyvoice.yaml")
TOKENIZER_FILES = ("speech_tokenizer_v3.onnx", "speech_tokenizer_v2.onnx")
LLM_FILES = ("llm.pt", "llm.rl.pt")
BODY_FOLDER = "CosyVoice-BlankEN"
CARD_BYTES, CARD_LINE_CHARS = 65_536, 300
CARD_LINES = ("name", "note")
CARD_FLAGS = ("trained", "instructions", "tags", "capitals", "joins_sentences", "short_texts")


@dataclass(frozen=True)
class Release:
    """A model folder whose files are all there. card: facts of a model of our own, {} for published ones:

    name, trained, note (one line for users), languages (the only ones it speaks), instructions, tags and capitals (taught or not),
    joins_sentences (speaks several of one segment to the end), short_texts (speaks one far shorter than the reference's words well).
    """

    folder: Path
    spec: ModelSpec
    llm: Path
    flow: Path
    hift: Path
    speech_tokenizer: Path
    speaker_encoder: Path
    text_tokenizer: Path
    stored_voices: Path | None
    card: dict[str, Any]

    @property
    def name(self) -> str:
        return self.card.get("name") or self.spec.name


def find_release(folder: Path, llm_weights: str | None = None, languages: Collection[str] | None = None) -> Release:
    """Inspect a folder. languages: the codes that a card may name, None for any.

    Raises: ModelFilesError: names the first file that is missing, empty or wrong, what was expected, and the command.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFilesError(f"{folder} is not a folder: give a model folder, or get one with {fetch_command(folder)}")
    yaml_path = next((folder / name for name in YAML_NAMES if (folder / name).is_file()), None)
    if yaml_path is None:
        raise ModelFilesError(
            f"{folder} holds none of {', '.join(YAML_NAMES)}: not a CosyVoice2 or CosyVoice3 folder, "
            f"or an incomplete one. Get a release with {fetch_command(folder)}"
        )
    check_file(yaml_path)
    config = read_yaml(yaml_path)
    body = folder / BODY_FOLDER
    check_file(body / "config.json")
    spec = read_spec(config, _read_json(body / "config.json"), yaml_path.name)
    names = (llm_weights,) if llm_weights else LLM_FILES
    paths = {
        "llm": _first(folder, names),
        "flow": folder / "flow.pt",
        "hift": folder / "hift.pt",
        "speech_tokenizer": _first(folder, _tokenizer_names(spec)),
        "speaker_encoder": folder / "campplus.onnx",
    }
    for path in paths.values():
        check_file(path)
    for name in ("vocab.json", "merges.txt"):
        check_file(body / name)
    stored = folder / "spk2info.pt"
    card = folder / "card.json"
    return Release(
        folder=folder,
        spec=spec,
        text_tokenizer=body,
        stored_voices=stored if stored.is_file() else None,
        card=_read_card(card, languages) if card.exists() or card.is_symlink() else {},
        **paths,
    )


def read_spec(config: dict[str, Any], qwen: dict[str, Any], file: str) -> ModelSpec:
    """ModelSpec from the yaml (as data) and the body's config.json. Values that old yamls lack have published defaults."""
    try:
        llm, version = _llm_spec(config, qwen)
        spec = ModelSpec(
            name={"v2": "CosyVoice2", "v3": "Fun-CosyVoice3"}[version],
            llm=llm,
            flow=_flow_spec(config["flow"]),
            vocoder=_hift_spec(config["hift"], config.get("sample_rate", 24000)),
            mel=_mel_spec(config["feat_extractor"]),
            text_tokens=version,
            needs_prefix=version == "v3",
            token_rate_hz=config.get("token_frame_rate", 25),
            frames_per_token=config.get("token_mel_ratio", 2),
        )
        _check_sizes(spec)
        return spec
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelFilesError(
            f"{file}: {type(error).__name__} {error}: a key is missing or has another form than in a release"
        ) from error


def _check_sizes(spec: Any, name: str = "") -> None:
    """Every number of a spec is a plausible size; a wild one would only fail deep inside, or take all memory.

    Raises: ValueError: names the field.
    """
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if dataclasses.is_dataclass(value):
            _check_sizes(value, field.name)
        elif field.type == "int":
            low, high = (0 if field.name in MAY_BE_ZERO else 1), 1_000_000
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{name} {field.name} is {value!r}, a whole number from {low} to {high} expected")
        elif field.type == "float" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"{name} {field.name} is {value!r}, a number expected")
    if isinstance(spec, LlmSpec) and (spec.layers > 512 or spec.width * spec.ffn_width > 2**30):
        raise ValueError(f"llm of {spec.layers} layers and width {spec.width} is not a size that this program runs")


MAY_BE_ZERO = ("sos_row", "task_row", "max_silent_run")


def _llm_spec(config: dict[str, Any], qwen: dict[str, Any]) -> tuple[LlmSpec, str]:
    node = config["llm"]
    tag = str(node.get(TAG, ""))
    if "CosyVoice3LM" in tag:
        version, make = "v3", LlmSpec.v3
    elif "Qwen2LM" in tag:
        version, make = "v2", LlmSpec.v2
    else:
        raise ValueError(f"llm is {tag or 'untagged'}; Qwen2LM (v2) or CosyVoice3LM (v3) expected")
    mix = node.get("mix_ratio", [5, 15])
    # Published yamls do not name the silent tokens of their codes; a model with other codes must.
    silent = {"silent_ids": tuple(config["silent_tokens"])} if "silent_tokens" in config else {}
    sampling = node.get("sampling", {})
    published = SamplingSpec()
    spec = make(
        text_vocab=qwen["vocab_size"],
        width=qwen["hidden_size"],
        layers=qwen["num_hidden_layers"],
        heads=qwen["num_attention_heads"],
        kv_heads=qwen["num_key_value_heads"],
        head_dim=qwen.get("head_dim") or qwen["hidden_size"] // qwen["num_attention_heads"],
        ffn_width=qwen["intermediate_size"],
        rms_eps=qwen["rms_norm_eps"],
        rope_theta=float(qwen.get("rope_theta") or qwen["rope_parameters"]["rope_theta"]),
        speech_tokens=node["speech_token_size"],
        mix_text=mix[0],
        mix_speech=mix[1],
        sampling=SamplingSpec(
            top_p=sampling.get("top_p", published.top_p),
            top_k=sampling.get("top_k", published.top_k),
            window=sampling.get("win_size", published.window),
            tau=sampling.get("tau_r", published.tau),
        ),
        **silent,
    )
    return spec, version


def _flow_spec(node: dict[str, Any]) -> FlowSpec:
    estimator = node["decoder"]["estimator"]
    if "DiT" in str(estimator.get(TAG, "")):
        front: ConformerSpec | LookaheadSpec = LookaheadSpec(channels=node["pre_lookahead_layer"]["channels"])
        velocity: UNetSpec | DiTSpec = DiTSpec(
            dim=estimator["dim"],
            depth=estimator["depth"],
            heads=estimator["heads"],
            head_dim=estimator["dim_head"],
            ff_mult=estimator["ff_mult"],
        )
    else:
        encoder = node["encoder"]
        front = ConformerSpec(
            width=encoder["output_size"],
            heads=encoder["attention_heads"],
            ffn_width=encoder["linear_units"],
            blocks=encoder["num_blocks"],
        )
        if len(estimator["channels"]) != 1:
            raise ValueError(f"estimator channels {estimator['channels']}: one width expected")
        velocity = UNetSpec(
            channels=estimator["channels"][0],
            head_dim=estimator["attention_head_dim"],
            heads=estimator["num_heads"],
            blocks=estimator["n_blocks"],
            mid_blocks=estimator["num_mid_blocks"],
        )
    parameters = node["decoder"].get("cfm_params", {})
    parameters = parameters.get("content", parameters)
    if parameters.get("t_scheduler", "cosine") != "cosine":
        raise ValueError(f"t_scheduler {parameters['t_scheduler']}: cosine expected")
    return FlowSpec(
        front=front,
        estimator=velocity,
        speech_tokens=node["vocab_size"],
        input_width=node["input_size"],
        mel_bins=node["output_size"],
        speaker_width=node["spk_embed_dim"],
        lookahead_tokens=node.get("pre_lookahead_len", 3),
        cfg_rate=parameters.get("inference_cfg_rate", 0.7),
    )


def _hift_spec(node: dict[str, Any], rate_hz: int) -> HiftSpec:
    published = HiftSpec(causal=True)
    return HiftSpec(
        causal="CausalHiFT" in str(node.get(TAG, "")),
        base_channels=node["base_channels"],
        f0_channels=node["f0_predictor"]["cond_channels"],
        mel_bins=node["in_channels"],
        rate_hz=node.get("sampling_rate", rate_hz),
        harmonics=node["nb_harmonics"],
        sine_amplitude=node["nsf_alpha"],
        noise_sigma=node["nsf_sigma"],
        voiced_threshold_hz=node["nsf_voiced_threshold"],
        upsample_rates=tuple(node["upsample_rates"]),
        upsample_kernels=tuple(node["upsample_kernel_sizes"]),
        istft_n_fft=node["istft_params"]["n_fft"],
        istft_hop=node["istft_params"]["hop_len"],
        resblock_kernels=tuple(node["resblock_kernel_sizes"]),
        resblock_dilations=tuple(map(tuple, node["resblock_dilation_sizes"])),
        source_kernels=tuple(node["source_resblock_kernel_sizes"]),
        source_dilations=tuple(map(tuple, node["source_resblock_dilation_sizes"])),
        lrelu_slope=node.get("lrelu_slope", published.lrelu_slope),
        audio_limit=node.get("audio_limit", published.audio_limit),
        lookahead_frames=node.get("conv_pre_look_right", published.lookahead_frames),
    )


def _mel_spec(node: dict[str, Any]) -> MelSpec:
    fmax = node["fmax"]
    return MelSpec(
        rate_hz=node["sampling_rate"],
        n_fft=node["n_fft"],
        hop_samples=node["hop_size"],
        win_samples=node["win_size"],
        bins=node["num_mels"],
        fmin_hz=float(node["fmin"]),
        fmax_hz=None if fmax in (None, "None", "null") else float(fmax),
    )


def _tokenizer_names(spec: ModelSpec) -> tuple[str, ...]:
    return tuple(sorted(TOKENIZER_FILES, key=lambda name: spec.text_tokens not in name))


def _first(folder: Path, names: tuple[str, ...]) -> Path:
    """The first that exists, else the preferred one, so that the message names it."""
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _read_card(path: Path, languages: Collection[str] | None) -> dict[str, Any]:
    """A card whose known keys have the form that page, terminal and text frontend rely on; other keys are left alone.

    Raises: ModelFilesError: names the card and the key.
    """
    if not path.is_file() or path.stat().st_size > CARD_BYTES:
        raise ModelFilesError(
            f"{path.name}: a regular file of at most {CARD_BYTES:,} bytes expected: mend or delete it"
        )
    card = _read_json(path)

    def check(key: str, fits: bool, expected: str) -> None:
        if not fits:
            raise ModelFilesError(f"{path.name}: {key} has another form, {expected} expected: mend or delete it")

    for key in card.keys() & CARD_LINES:
        line = card[key]
        fits = isinstance(line, str) and len(line) <= CARD_LINE_CHARS and line.isprintable()
        check(key, fits, f"one printable line of at most {CARD_LINE_CHARS} characters")
    for key in card.keys() & CARD_FLAGS:
        check(key, isinstance(card[key], bool), "true or false")
    if "languages" in card:
        codes = card["languages"]
        fits = isinstance(codes, list) and all(isinstance(code, str) for code in codes)
        check("languages", fits, "a list of codes like en")
        if languages is not None:
            check("languages", set(codes) <= set(languages), f"a list of these codes: {', '.join(sorted(languages))}")
    return card


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: not json, not text, a number of thousands of digits
        raise ModelFilesError(f"{path.name} in {path.parent.name} is not valid json: download it again") from error
    if not isinstance(data, dict):
        raise ModelFilesError(f"{path.name}: expected an object")
    return data
