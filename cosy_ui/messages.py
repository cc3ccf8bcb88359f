"""What the engine says, in the reader's language. Its English is exact and stays the default; Chinese comes from patterns,
and a sentence that no pattern knows is led by the Chinese words of its error code."""

from __future__ import annotations

import re

from cosy_engine import CosyError
from cosy_engine.errors import InputMissing

INTERNAL = (
    "something failed inside the program: the cause is in its log",
    "程序内部出错，原因见日志；请重试或换一种设置。",
)

CODES = {
    "error": "出错了",
    "bad_input": "输入无法使用",
    "text_empty": "文本为空：请输入要合成的内容",
    "text_unspeakable": "文本中没有可以朗读的文字，只有标点、符号或标记：请写一些文字",
    "text_too_long": "文本过长：请缩短，或分几次生成",
    "input_missing": "缺少一项输入",
    "setting_invalid": "设置无效",
    "reference_unreadable": "音频无法读取：请转换为 wav、flac、mp3 或 m4a 后重试",
    "reference_too_short": "音频太短：请录制更长的片段（3–10 秒最佳）",
    "reference_too_long": "音频太长：请截取 3–10 秒",
    "reference_silent": "音频没有声音：请检查麦克风或换一段",
    "model_files": "模型文件有问题",
    "mode_unavailable": "此处不可用",
    "generation_failed": "模型未能生成可用的语音：请修改文本或更换种子",
    "not_finite": "模型的数值出错：请改用 fp32 精度",
    "cancelled": "已停止",
    "busy": "排队已满：请稍后再试",
}
MISSING = {
    "reference": "缺少参考音频：请上传或录制 3–10 秒的声音",
    "transcript": "缺少参考音频的文字：请填写，或改用“跨语种克隆”（无需文字）",
    "instruction": "缺少朗读方式：例如“请小声地说”",
    "source": "缺少要转换的录音：请上传需要保留内容的录音",
}
COMPLETE = {"text_empty", "text_unspeakable", "cancelled", "busy"}  # whose English has no further particulars

PATTERNS: tuple[tuple[re.Pattern, str], ...] = tuple(
    (re.compile(english, re.S), chinese)
    for english, chinese in (
        (
            r"the text has ([\d,]+) characters, at most ([\d,]+) .*",
            r"文本有 \1 个字符，一次最多 \2 个：请缩短或分几次生成",
        ),
        (r"choose a saved voice first", "请先选择一个已存声音"),
        (r"seed (.+) is out of range: choose .* to (\d+)", r"种子 \1 超出范围：请填 0 到 \2 之间的整数"),
        (r"speed (.+) is out of range.*", r"语速 \1 超出范围：请选择 0.5 到 2"),
        (r"speed is not available in streaming.*", "流式时不能调语速：请把语速设为 1，或关闭流式"),
        (r"mode (\w+) does not use (\w+).*", r"模式 \1 不使用 \2：请留空，或换一种模式"),
        (r"(.+) is a text file, not audio.*", r"\1 是文本文件，不是音频：请选择音频文件"),
        (r"(.+) is empty \(0 bytes\).*", r"\1 是空文件（0 字节）：请重新录制或上传"),
        (r"(.+) has no sound track.*", r"\1 没有声音轨道：请换一个文件"),
        (r"(.+) is silent: .*", r"\1 没有声音：请检查麦克风或换一段"),
        (r"(.+) is ([\d.]+) s long, at least ([\d.]+) s .*", r"\1 长 \2 秒，至少需要 \3 秒：请录制更长的片段（3–10 秒最佳）"),
        (r"the reference is ([\d.]+) s long, at most (\d+) s .*", r"参考音频长 \1 秒，带文字时最多 \2 秒：请截取 3–10 秒并只写该段的文字"),
        (r"(\d+) requests are waiting already.*", r"已有 \1 个请求在排队：请稍后再试"),
        (r"transcription is off: (.*)", r"自动识别不可用：\1"),
        (r"no Whisper model was given.*", "未指定 Whisper 模型，启动时加 --whisper 文件夹"),
        (r"the Whisper model (.+) is not on this machine.*", r"本机没有 Whisper 模型 \1，请用 --whisper 指定其文件夹"),
        (r"the Whisper model (.+) cannot be loaded.*", r"Whisper 模型 \1 无法载入"),
        (r"(\w+) (\w+) is not available here: (.*)", r"\2 在此不可用：\3"),
        (r"CPUs compute half precision slower.*", "CPU 的半精度比 fp32 更慢，需要 CUDA 显卡"),
        (r"CUDA Graphs need a CUDA GPU.*", "CUDA Graph 需要 CUDA 显卡，本机使用 CPU"),
        (r"fused decode kernels need a CUDA GPU.*", "融合解码核需要 CUDA 显卡，本机使用 CPU"),
        (r"this GPU has no bfloat16.*", "此显卡不支持 bfloat16（需要计算能力 8.0 以上）"),
        (r"segment (\d+): the model repeated itself; spoken again.*", r"第 \1 段：模型出现重复，已换一次采样重新合成"),
        (r"segment (\d+): the model did not come to an end.*; spoken again.*", r"第 \1 段：模型未在限定长度内结束，已换一次采样重新合成"),
        (r"segment (\d+): the model produced no speech; spoken again.*", r"第 \1 段：模型没有产生语音，已换一次采样重新合成"),
        (r"segment (\d+): .*the end was cut.*", r"第 \1 段：结尾被截断，使用前请先试听"),
        (r"segment (\d+): (\w+) gave values that are no numbers.*", r"第 \1 段：\2 数值溢出，此后以 fp32 合成"),
        (r"This is the untrained miniature.*", "这是未训练的迷你模型：权重随机，只会发出噪声。要合成语音请下载模型：./run.sh fetch v3"),
        (r"numbers were read by built-in rules.*", "数字由内置规则朗读：安装 wetext 效果更好"),
        (r"the addresses behind links are not spoken", "链接背后的地址不朗读"),
        (r"not spoken, because the model has no such tag in a text: (.*)", r"不会朗读，模型没有这种标记：\1"),
        (r"the text is much shorter than the words of the reference.*", "文本远短于参考音频的文字，效果往往较差：请用更短的参考音频或更长的文本"),
        (r"the transcript does not seem to belong to this clip \(([\d.]+) .*", r"文字与音频似乎不匹配（每秒 \1 个音节）：请核对是否与所说内容完全一致"),
        (r"the clip is (\d+) s long: the part from ([\d.]+) s to ([\d.]+) s .*", r"音频长 \1 秒：使用 \2–\3 秒作为参考"),
        (r"the reference is (\d+) s long: 3-10 s .*", r"参考音频长 \1 秒：3–10 秒通常效果更好"),
        (r"no speech was found in the clip.*", "未检测到语音：使用音频开头部分"),
        (r"the clip has (\d+) Hz.*", r"采样率 \1 Hz：声音会像电话一样发闷，16000 Hz 以上更好"),
        (r"only the (left|right) channel has sound.*", "只有一个声道有声音，仅使用该声道"),
        (r"(\d+) of (\d+) channels are silent.*", r"\2 个声道中有 \1 个无声，已忽略"),
        (r"the channels cancel each other.*", "声道反相互相抵消，仅使用最响的声道"),
        (r"a constant offset was removed", "已去除直流偏移"),
        (r"the level exceeded full scale.*", "电平超过满幅，已降低"),
        (r"(.+) is damaged or cut off: the ([\d.]+) s .*", r"\1 已损坏或不完整：使用可读取的 \2 秒"),
        (r"(.+) is not a usable voice file \((.*)\).*", r"\1 不是可用的声音文件（\2）：请用原音频重新保存"),
        (r"(.+) was made with .*, the loaded model is .*", r"\1 由另一模型生成：请用当前模型重新保存"),
    )
)  # fmt: skip


def error_words(error: Exception, lang: str) -> str:
    """What the page may say of an error; internals stay in the log."""
    if not isinstance(error, CosyError):
        return INTERNAL[lang == "zh"]
    text = str(error)
    if lang != "zh":
        return text
    if isinstance(error, InputMissing) and error.field in MISSING:
        return found if (found := _by_pattern(text)) else MISSING[error.field]
    if error.code in COMPLETE and error.code != "busy":
        return CODES[error.code]
    if found := _by_pattern(text):
        return found
    return f"{CODES.get(error.code, CODES['error'])}（{text}）"


def note_words(note: str, lang: str) -> str:
    """A note or reason of the engine in the reader's language."""
    return (_by_pattern(note) or note) if lang == "zh" else note


def _by_pattern(text: str) -> str | None:
    for pattern, chinese in PATTERNS:
        if match := pattern.fullmatch(text):
            words = match.expand(chinese)
            if match.lastindex and chinese.endswith(r"\3"):  # what follows is a reason of its own
                reason = match[3]
                words = words.removesuffix(reason) + (_by_pattern(reason) or reason)
            if match.lastindex == 1 and chinese.endswith(r"：\1") and "自动识别" in chinese:
                words = words.removesuffix(match[1]) + (_by_pattern(match[1]) or match[1])
            return words
    return None
