"""The doctor's sentences in Chinese. Its English comes from cosy_engine.health; what no pattern knows stays as it is,
which a test allows for numbers and names only."""

from __future__ import annotations

import re

PATTERNS: tuple[tuple[re.Pattern, str], ...] = tuple(
    (re.compile(english, re.S), chinese)
    for english, chinese in (
        # Causes
        (r"running on the CPU because CUDA_VISIBLE_DEVICES hides it", "在 CPU 上运行：CUDA_VISIBLE_DEVICES 隐藏了显卡"),
        (r"running on the CPU because no NVIDIA driver answers", "在 CPU 上运行：没有可用的 NVIDIA 驱动"),
        (r"running on the CPU because this torch was built without CUDA", "在 CPU 上运行：当前 torch 不含 CUDA"),
        (r"running on the CPU because driver (\S+) is too old for CUDA (\S+) \(at least (\d+)\)", r"在 CPU 上运行：驱动 \1 对 CUDA \2 过旧（至少需要 \3）"),
        (r"running on the CPU because torch cannot use the GPU that the driver reports", "在 CPU 上运行：驱动识别到显卡，但 torch 无法使用"),
        (r"this torch has no code for compute capability (\S+)", r"当前 torch 不支持计算能力 \1"),
        (r"the GPU waits for the CPU to launch kernels under WDDM", "GPU 在等待 CPU 启动核函数（WDDM 驱动模式）"),
        (r"the GPU waits for the CPU to launch kernels", "GPU 在等待 CPU 启动核函数"),
        (r"one CPU core does the launching, and it is slow", "核函数由单个 CPU 核心启动，而该核心较慢"),
        (r"the reference is analysed on the CPU", "参考音频在 CPU 上分析"),
        (r"packages that the program needs are not installed", "缺少程序所需的软件包"),
        (r"(\S+) (\S+) is outside of what is known to work", r"\1 \2 不在已验证的版本范围内"),
        (r"fp16 is slower end to end than fp32 here, .*", "此处 fp16 整体比 fp32 更慢，说明其生成未在应结束处结束"),
        (r"fp32 reads twice the bytes and fills twice the memory of half precision", "fp32 的读取量和显存占用是半精度的两倍"),
        (r"language model, flow and vocoder run one after another", "语言模型、flow 与声码器依次串行运行"),
        (r"the first sound waits for the whole text", "首个声音要等整段文本完成"),
        (r"one request at a time leaves the GPU idle", "一次只处理一个请求，GPU 未充分利用"),
        (r"the GPU's memory is nearly full and can splinter", "显存几乎用尽，并可能产生碎片"),
        (r"the computer's memory is nearly used up, .*", "内存几乎用尽，加载模型约需 4 GB"),
        (r"other programs use the GPU", "其他程序正在使用显卡"),
        (r"the GPU's power is limited below what it may take", "显卡功耗被限制在上限以下"),
        (r"the weights lie on a slow disk: .*", "权重所在磁盘较慢：启动耗时较长，合成不受影响"),
        (r"this CPU has no AVX2, or torch does not use it", "CPU 没有 AVX2，或 torch 未使用"),
        (r"a proxy is set: .*", "已设置代理：下载经由代理，本机页面地址不应经过代理"),
        (r"decoding an mp3 reference takes its time here", "此处解码 mp3 参考音频较慢"),
        (r"decoding the (\S+) takes its time", r"解码 \1 较慢"),
        (r"the fused tier is not available", "融合（fused）模式不可用"),
        (r"numbers are read by built-in rules", "数字由内置规则朗读"),
        (r"the model folder cannot be used", "模型文件夹无法使用"),
        # Evidence
        (r"no GPU found", "未找到显卡"),
        (r"built for (.*)", r"编译目标：\1"),
        (r"(\d+) layers x about (\d+) kernels x (\d+) us = (\d+) ms of your (\d+) ms per token", r"\1 层 × 约 \2 个核函数 × \3 微秒 = \4 毫秒（每 token 共 \5 毫秒）"),
        (r"(\d+) layers x about (\d+) kernels x (\d+) us = (\d+) ms", r"\1 层 × 约 \2 个核函数 × \3 微秒 = \4 毫秒"),
        (r"(\d+) million loop turns a second, current desktops reach 25 \((.*)\)", r"每秒 \1 百万次循环，目前桌面机约 25（\2）"),
        (r"onnxruntime runs on (.*)", r"onnxruntime 运行于 \1"),
        (r"known good: (\S+) up to (\S+)", r"已验证：\1 至 \2"),
        (r"RTF ([\d.]+) in fp16, ([\d.]+) in fp32", r"fp16 的 RTF 为 \1，fp32 为 \2"),
        (r"([\d.]+) ms per token go into the second half of the bytes", r"每 token 有 \1 毫秒用于读取另一半字节"),
        (r"RTF above 1 with the GPU idle in between", "RTF 大于 1，且 GPU 间歇空闲"),
        (r"first sound after ([\d.]+) s", r"首个声音在 \1 秒后"),
        (r"GPU (\d+) % busy", r"GPU 占用 \1 %"),
        (r"([\d.]+) of ([\d.]+) GB", r"已用 \1 GB，共 \2 GB"),
        (r"([\d.]+) GB free", r"可用 \1 GB"),
        (r"(\d+) of (\d+) W", r"\1 W，上限 \2 W"),
        (r"unknown CPU", "未知 CPU"),
        (r"5 s of mp3 (\d+) ms, of wav (\d+) ms", r"5 秒 mp3 需 \1 毫秒，wav 需 \2 毫秒"),
        (r"Triton is not installed", "未安装 Triton"),
        (r"built-in rules", "内置规则"),
        (r"its files are incomplete or damaged", "文件不完整或已损坏"),
        (r"(.+) cannot be read \((.*)\)", r"\1 无法读取（\2）"),
        (r"(.+) cannot be understood \((.*)\)", r"\1 无法解析（\2）"),
        # Fixes
        (r"install the driver, or use a machine with a GPU", "安装驱动，或使用带显卡的机器"),
        (r"install a newer NVIDIA driver, or: (.*)", "安装更新的 NVIDIA 驱动，或安装面向旧版 CUDA 的 torch"),
        (r"(python -c '.*') names the cause", r"运行 \1 查看原因"),
        (r"pip install --upgrade torch \(a build for newer CUDA\)", "pip install --upgrade torch（面向新版 CUDA）"),
        (r"switch CUDA Graph on \(--tier graph; fused where Triton is installed\); on Windows WSL2 or Linux launches faster",
         "打开 CUDA Graph（--tier graph；装有 Triton 时用 fused）；在 Windows 上，WSL2 或 Linux 启动更快"),
        (r"switch CUDA Graph on \(--tier graph; fused where Triton is installed\)", "打开 CUDA Graph（--tier graph；装有 Triton 时用 fused）"),
        (r"CUDA Graph takes the launching off the CPU; else .*", "CUDA Graph 可免去 CPU 的启动开销；否则请换用更快的核心、使用高性能电源方案，多路机器请绑定到显卡所在的插槽"),
        (r"this program keeps sums, norms and logits in fp32 .*", "本程序在各精度下均以 fp32 计算求和、归一化和 logits；请用相同文本与种子对比"),
        (r"choose fp16 or bf16 \(--precision fp16\)", "选择 fp16 或 bf16（--precision fp16）"),
        (r"switch CUDA Graph on: decoding goes on while a chunk is rendered", "打开 CUDA Graph：渲染一段时解码继续进行"),
        (r"switch Streaming on: .*", "打开流式：约一秒语音确定后即可发声"),
        (r"raise --slots: .*", "调大 --slots：多个请求一起解码，8 个的开销低于 2 个分别运行"),
        (r"PYTORCH_ALLOC_CONF=expandable_segments:True \(run.sh sets it\)", "PYTORCH_ALLOC_CONF=expandable_segments:True（run.sh 会自动设置）"),
        (r"close other programs", "关闭其他程序"),
        (r"close them, or choose another --device", "关闭它们，或换一个 --device"),
        (r"move the model folder to a local SSD .*", "把模型文件夹移到本地 SSD，并用 --model 指定"),
        (r"use a newer CPU; .*", "换用较新的 CPU；虚拟机请透传宿主 CPU"),
        (r"(export no_proxy=\S+) \(.*\)", r"\1（webui.py 会自行设置）"),
        (r"use a wav or flac as reference; .*", "参考音频请用 wav 或 flac；用过的声音会被缓存"),
        (r"Linux wheels of torch bring it; on Windows: pip install triton-windows", "Linux 版 torch 自带；Windows 上：pip install triton-windows"),
        (r"see the message", "见提示"),
        # Live panel
        (r"this engine runs on the CPU", "引擎运行于 CPU"),
        (r"nvidia-ml-py is not installed: (.*)", r"未安装 nvidia-ml-py：\1"),
        (r"the driver gives no figures \((.*)\)", r"驱动未提供数据（\1）"),
        # Sources of anchors
        (r"measured by us, official code, random weights", "我们实测：官方代码，随机权重"),
    )
)  # fmt: skip
COMMAND = re.compile(r"(?:pip|nvidia-smi|export|unset|python|PYTORCH_ALLOC_CONF=)[^;()（；]*")
PARTS = (("streamed", "流式"), ("this program", "本程序"), ("random weights", "随机权重"), ("plain", "原版"), ("batch", "批大小"), ("eager", "eager"), ("pull request", "PR"),
         (" on a CPU, not stated which", "，CPU（型号未注明）"), (" and ", " 与 "))  # fmt: skip


def doctor_words(text: str, lang: str) -> str:
    """A sentence of the doctor in the reader's language."""
    if lang != "zh":
        return text
    for pattern, chinese in PATTERNS:
        if match := pattern.fullmatch(text):
            return match.expand(chinese)
    return text


def anchor_words(text: str, lang: str) -> str:
    """How an anchor was run, which is names and a few words."""
    if lang == "zh":
        for english, chinese in PARTS:
            text = text.replace(english, chinese)
    return text


def command_of(fix: str) -> str:
    """The part of a fix that can be pasted into a terminal; "" where it has none."""
    found = COMMAND.search(fix)
    return found[0].strip() if found else ""
