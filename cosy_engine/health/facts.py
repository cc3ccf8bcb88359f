"""What the doctor knows of a machine. Every field may be unknown (None); nothing here imports torch or asks anything."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Facts:
    """Facts and measurements of one machine.

    driver_model: "WDDM", "TCC", "MCDM", "WSL" or "Linux". capability: (major, minor) of the GPU; built_for: "sm_90" and so on
    of the torch build. versions: package -> version. onnx_provider: what the reference networks really run on.
    single_core: a small Python loop, millions of turns a second (a current desktop reaches about 25). launch_us, sync_us,
    copy_bytes_s: as in cost.MachineSpeed. measured: (tier, precision) -> ms per token, where known. rtf: likewise.
    reference_decode_s: time to decode the user's reference; reference_format: its ending. cuda_usable: whether torch can use
    a GPU. missing: packages that are needed and not there. vector: the widest vector instructions that torch uses, "AVX512"
    say. product_bytes_s: as in cost.MachineSpeed. disk_bytes_s: of the weights. front_end_s: provider -> analysing 5 s of
    reference. decode_s: format -> decoding 5 s. stand_in: (tier, precision) -> ms per token by a measured small model.
    """

    gpu: str | None = None
    gpu_memory_gb: float | None = None
    gpu_memory_used_gb: float | None = None
    gpu_busy: float | None = None
    driver: str | None = None
    driver_model: str | None = None
    capability: tuple[int, int] | None = None
    built_for: tuple[str, ...] = ()
    torch_cuda: str | None = None
    cudnn: str | None = None
    cuda_usable: bool | None = None
    power_limit_w: float | None = None
    power_most_w: float | None = None
    clock_mhz: float | None = None
    clock_most_mhz: float | None = None
    cuda_hidden: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    ffmpeg: bool | None = None
    onnx_provider: str | None = None
    triton: bool | None = None
    compiler: bool | None = None
    cpu: str | None = None
    sockets: int | None = None
    cores: int | None = None
    single_core: float | None = None
    vector: str | None = None
    numa_nodes: int | None = None
    memory_gb: float | None = None
    memory_free_gb: float | None = None
    disk_bytes_s: float | None = None
    launch_us: float | None = None
    sync_us: float | None = None
    copy_bytes_s: float | None = None
    product_bytes_s: dict[str, float] = field(default_factory=dict)
    front_end_s: dict[str, float] = field(default_factory=dict)
    decode_s: dict[str, float] = field(default_factory=dict)
    stand_in: dict[tuple[str, str], float] = field(default_factory=dict)
    other_gpu_programs: tuple[str, ...] = ()
    allocator_set: bool | None = None
    normaliser: str | None = None
    proxy: tuple[str, ...] = ()
    model: str | None = None
    model_error: str | None = None
    tier: str | None = None
    precision: str | None = None
    streaming: bool | None = None
    batch: int | None = None
    measured: dict[tuple[str, str], float] = field(default_factory=dict)
    rtf: dict[tuple[str, str], float] = field(default_factory=dict)
    reference_decode_s: float | None = None
    reference_format: str | None = None
    first_audio_s: float | None = None
