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
    "language_unknown": "此模型不会这种语言",
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
    "memory_short": "显存不足：请缩短文本或参考音频，或减少同时运行的请求（--slots）",
    "not_finite": "模型的数值出错：请改用 fp32 精度",
    "cancelled": "已停止",
    "busy": "排队已满：请稍后再试",
}
MISSING = {
    "reference": "缺少参考音频：请上传或录制 3–10 秒的声音",
    "transcript": "缺少参考音频的文字：请填写，或改用“克隆（无文字）”",
    "instruction": "缺少朗读方式：例如“请小声地说”",
    "source": "缺少要转换的录音：请上传需要保留内容的录音",
}
COMPLETE = {"text_empty", "text_unspeakable", "cancelled", "busy"}  # whose English has no further particulars

REFERENCE = re.compile(r"[\\@][1-9]")
# English of the engine -> Chinese. tests/ui/engine_words.py reads the engine's source: a sentence that is missing here fails.
PATTERNS: tuple[tuple[re.Pattern, str], ...] = tuple(
    (re.compile(english, re.S), chinese)
    for english, chinese in (
        (
            r"the text has ([\d,]+) characters, at most ([\d,]+) .*",
            r"文本有 \1 个字符，一次最多 \2 个：请缩短或分几次生成",
        ),
        (r"this page is shared: confirm with consent=True .*", "本页面已公开分享：请用 consent=True 确认您有权使用该声音"),
        (r"runs (.+) is out of range: choose 1 to (\d+)", r"次数 \1 超出范围：请选择 1 到 \2"),
        (r"(\d+) requests are being served: measurements .*", r"正在处理 \1 个请求，测量会受影响：请稍后再试。"),
        (r"On a shared page at most (\d+) ways .*", r"公开页面最多比较 \1 种方式：请减少选择。"),
        (r"On a shared page a comparison speaks at most (\d+) .*", r"公开页面的对比文本最长 \1 字：请缩短文本。"),
        (r"unknown variant (.+): .*", r"未知的方式 \1：请写成 eager-fp32-whole 或 graph-fp16-stream 的形式"),
        (r"no saved voice is called (.+): /voices lists them", r"没有名为 \1 的声音：/voices 会列出现有的声音"),
        (r"choose a saved voice first: /voices lists them", "请先选择一个已存声音：/voices 会列出现有的声音"),
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
        (r"(\d+) requests are waiting already: try again in about (\d+) s", r"已有 \1 个请求在排队：请约 \2 秒后再试"),
        (r"(\d+) requests are waiting already.*", r"已有 \1 个请求在排队：请稍后再试"),
        (r"too many requests in a short time: try again in (\d+) s", r"请求过于频繁：请在 \1 秒后重试"),
        (r"(\d+) of your requests are running or waiting already.*", r"您已有 \1 个请求在处理或排队：请等其中一个结束"),
        (r"the program is stopping.*", "程序正在停止：请一分钟后重试"),
        (r"a shared page keeps one model loaded", "公开页面只保留一个已载入的模型"),
        (r"the device's memory (ran out|is too small for this request): .*", "显存不足：请缩短文本或参考音频，或减少同时运行的请求（--slots）"),
        (r"(\d+) requests are being served: the figures.*", r"正在处理 \1 个请求，测得的数据会受影响：请稍后再试，或勾选“有其他请求时也运行”"),
        (r"(\S+-\S+) is not available here: (.*)", r"\1 在此不可用：\2"),
        (r"nothing to compare: .*", "没有可比较的方式：请至少选择一种"),
        (r"the (language|sound) model gave values that are no numbers.*", "模型的数值溢出：请改用 fp32 精度"),
        (r"transcription is off: (.*)", r"自动识别不可用：@1"),
        (r"no Whisper model was given.*", "未指定 Whisper 模型，启动时加 --whisper 文件夹"),
        (r"the Whisper model (.+) is not on this machine.*", r"本机没有 Whisper 模型 \1，请用 --whisper 指定其文件夹"),
        (r"the Whisper model (.+) cannot be loaded.*", r"Whisper 模型 \1 无法载入"),
        (r"(\w+) (\w+) is not available here: (.*)", r"\2 在此不可用：@3"),
        (r"CPUs compute half precision slower.*", "CPU 的半精度比 fp32 更慢，需要 CUDA 显卡"),
        (r"CUDA Graphs need a CUDA GPU.*", "CUDA Graph 需要 CUDA 显卡，本机使用 CPU"),
        (r"fused decode kernels need a CUDA GPU.*", "融合解码核需要 CUDA 显卡，本机使用 CPU"),
        (r"the fused kernels do not fit this model: (.*)", r"融合解码核不适用于此模型：\1"),
        (r"Triton is not installed.*", "未安装 Triton（Linux 上随 torch 安装；Windows：pip install triton-windows）"),
        (r"this GPU has compute capability ([\d.]+); .*", r"此显卡的计算能力为 \1，融合解码核需要 8.0 以上"),
        (r"this Triton is too old.*", "Triton 版本过旧，融合解码核需要 3.4 以上"),
        (r"this GPU has no bfloat16.*", "此显卡不支持 bfloat16（需要计算能力 8.0 以上）"),
        # A request that went on in spite of something, or did not
        (r"segment (\d+): (\w+) gave values that are no numbers.*", r"第 \1 段：\2 数值溢出，此后以 fp32 合成"),
        (r"segment (\d+) \((.*)\): (.*), twice\. Change the text or the seed\.", r"第 \1 段（\2）：@3，重试后依旧：请修改文本或更换种子"),
        (r"segment (\d+): ([^;]*); ([^;]*)", r"第 \1 段：@2，@3"),
        (r"(the [^;:]*); (the end was cut, listen before you use it|listen before you use it)", r"@1，@2"),
        (r"(the [^;:]*): change the text or the seed", r"@1：请修改文本或更换种子"),
        (r"the model produced no speech", "模型没有产生语音"),
        (r"the model repeated itself", "模型出现重复"),
        (r"the model did not come to an end within the length that the text allows", "模型未在文本允许的长度内结束"),
        (r"the audio is too short for the text", "音频相对文本过短"),
        (r"the audio is silent", "音频没有声音"),
        (r"the audio is noise", "音频是噪声"),
        (r"spoken again with another draw", "已换一次采样重新合成"),
        (r"the end was cut, listen before you use it", "结尾被截断，使用前请先试听"),
        (r"listen before you use it", "使用前请先试听"),
        (r"the (language|sound) model gave values that are no numbers: try precision fp32", "模型的数值溢出：请改用 fp32 精度"),
        (r"reference and speech together need (\d+) s, at most (\d+) s .*", r"参考音频与语音合计需要 \1 秒，一次最多 \2 秒：请分段，或用更短的参考音频"),
        (r"(\d+) s of speech in one piece, at most (\d+) s .*", r"单段语音长 \1 秒，最多 \2 秒：请把文本分段"),
        (r"the engine is closing.*", "程序正在关闭，不再接受新的请求"),
        (r"stopped", "已停止"),
        # What was given
        (r"a reference clip is missing.*", MISSING["reference"]),
        (r"the words spoken in the reference clip are missing.*", MISSING["transcript"]),
        (r"the instruction is missing.*", MISSING["instruction"]),
        (r"the source clip is missing.*", MISSING["source"]),
        (r"the text is empty.*", CODES["text_empty"]),
        (r"the text holds no word that can be spoken.*", CODES["text_unspeakable"]),
        (r"the text iterator ended without a word.*", "文本流没有可朗读的内容：请给出文字"),
        (r"the text iterator gave a (.+): give pieces of text", r"文本流给出了 \1：请逐段给出文字"),
        (r"more than ([\d,]+) characters came.*", r"文本流超过 \1 个字符：请结束后另发请求"),
        (r"the transcript has ([\d,]+) characters, at most ([\d,]+) .*", r"参考文字有 \1 个字符，最多 \2 个：请缩短"),
        (r"the instruction has ([\d,]+) characters, at most ([\d,]+) .*", r"朗读方式有 \1 个字符，最多 \2 个：请缩短"),
        (r"the (\w+) has ([\d,]+) characters, at most ([\d,]+) .*", r"\1 有 \2 个字符，最多 \3 个：请缩短"),
        (r"(\w+) is of type (.+): give a text.*", r"\1 的类型是 \2：请给出文字"),
        (r"stream is (.+): give True or False", r"stream 的值是 \1：请给 True 或 False"),
        (r"unknown (\w+) (.+): choose one of (.*)", r"未知的 \1 \2：可选 \3"),
        (r"the seed has ([\d,]+) characters: choose .* to (\d+)", r"种子有 \1 个字符：请填 0 到 \2 之间的整数"),
        (r"the file could not be written \((.*)\): .*", r"文件无法写入（\1）：请告知管理者，或几分钟后重试"),
        (r"the part of the clip cannot be read: .*", "所选片段无法识别：请在波形上重新选择"),
        (r"seed (.+) is not a whole number: choose one from 0 to (\d+)", r"种子 \1 不是整数：请填 0 到 \2 之间的整数"),
        (r"(\d+) voices are kept already.*", r"已保存 \1 个声音：请先删除一个"),
        (r"the model had been unloaded while nobody used it, and was loaded again in ([\d.]+) s", r"模型空闲时已卸载，重新加载用了 \1 秒"),
        # The clip
        (r"(.+) is not audio that can be read: .*", r"\1 不是可以读取的音频：请转换为 wav、flac、mp3 或 m4a 后重试"),
        (r"(.+) is a Git LFS pointer.*", r"\1 只是 Git LFS 指针，不是音频本身：请下载真正的文件"),
        (r"(.+) holds only zero bytes.*", r"\1 全为零字节，上传或下载失败：请重新获取文件"),
        (r"(.+) holds no sound: .*", r"\1 没有声音内容：请转换为 wav、flac、mp3 或 m4a 后重试"),
        (r"(.+) holds no samples.*", r"\1 没有采样：请重新录制"),
        (r"(.+) has (\d+) MB, at most (\d+) MB .*", r"\1 有 \2 MB，最多读取 \3 MB：请截取 3–10 秒"),
        (r"(.+) claims .* which cannot be right.*", r"\1 标明的采样率或声道数不可能正确：请转换为 wav、flac、mp3 或 m4a 后重试"),
        (r"(.+) cannot be read \((.*)\): choose another file", r"\1 无法读取（\2）：请换一个文件"),
        (r"(.+) has sound in an unknown encoding.*", r"\1 的音频编码未知：请转换为 wav、flac、mp3 或 m4a 后重试"),
        (r"(.+) is longer than (\d+) s, .*", r"\1 超过 \2 秒，无法读取这么长：请截取 3–10 秒"),
        (r"the clip has ([\d.]+) s, at least ([\d.]+) s .*", r"音频长 \1 秒，至少需要 \2 秒：请录制更长的片段（3–10 秒最佳）"),
        (r"the clip is ([\d.]+) s, at most (\d+) s .*", r"音频长 \1 秒，一次最多读取 \2 秒：请截短后重试"),
        (r"the reference clip is ([\d.]+) s, at least ([\d.]+) s .*", r"参考音频长 \1 秒，至少需要 \2 秒：请录制更长的片段（3–10 秒最佳）"),
        (r"the reference clip is ([\d.]+) s, at most ([\d.]+) s .*", r"参考音频长 \1 秒，最多读取 \2 秒：请截短后重试"),
        (r"the source clip is ([\d.]+) s, at least ([\d.]+) s .*", r"要转换的录音长 \1 秒，至少需要 \2 秒：请录制更长的片段"),
        (r"(.+) is not a usable voice \((.*)\).*", r"\1 不是可用的声音（\2）：请用原音频重新保存"),
        (r"(.+): (\d+%) of its samples are no numbers.*", r"\1 有 \2 的采样不是数值：请重新导出"),
        (r"(.+) holds samples that are no numbers; they were silenced", r"\1 含有不是数值的采样，已置为静音"),
        (r"(.+) is no audio: .*", r"\1 不是音频：请给出文件"),
        (r"reference clip: (.*)", r"参考音频：@1"),
        (r"no speech was found: .*", "未检测到语音，请选择有人说话的音频"),
        (r"short: 3 to 10 s .*", "偏短，3–10 秒相似度更好"),
        (r"mostly pauses: .*", "停顿过多，请选择语音更多的音频"),
        (r"quiet: record .*", "音量偏小，请靠近麦克风录制"),
        (r"distorted by too high a level: .*", "音量过大导致失真，请降低音量重录"),
        (r"noisy: .*", "噪声较大，输出中也会听到噪声"),
        (r"clicks or crackles: .*", "有咔嗒声或爆音，请重新录制或另选一段"),
        (r"the clip ends inside a word: it was cut at the pause before", "音频结尾处话未说完，已截到之前的停顿处"),
        (r"the reference is (quiet|loud): its level was changed by (\S+) dB", r"参考音频音量不合适，已调整 \2 dB"),
        (r"the reference speaks (\w+) and the text is (\w+): .*", r"参考音频是@1，文本是@2，可能带口音：“克隆（无文字）”口音较轻，用与文本同语言的参考音频最好"),
        (r"zh|Chinese", "中文"), (r"en|English", "英文"), (r"ja|Japanese", "日文"), (r"ko|Korean", "韩文"), (r"yue", "粤语"),
        (r"German", "德文"), (r"French", "法文"), (r"Spanish", "西班牙文"), (r"Italian", "意大利文"), (r"Russian", "俄文"),
        (r"Portuguese", "葡萄牙文"), (r"Arabic", "阿拉伯文"), (r"Vietnamese", "越南文"), (r"Dutch", "荷兰文"), (r"Polish", "波兰文"), (r"Swedish", "瑞典文"), (r"Turkish", "土耳其文"),
        (r"Hebrew", "希伯来文"), (r"Thai", "泰文"), (r"Ukrainian", "乌克兰文"), (r"another language", "另一种语言"),
        (r"the transcript looks like ([^,]+), and this model speaks ([^:]+) only: .*", r"参考文字看起来是@1，而此模型只会@2：请下载完整模型（./run.sh fetch v3），或不填文字，用“克隆（无文字）”只克隆音色"),
        (r"the \w+ looks like ([^,]+), and this model speaks ([^:]+) only: .*", r"文本看起来是@1，而此模型只会@2：请改写，或下载完整模型：./run.sh fetch v3"),
        (r"this model was not taught instructions.*", "此模型没有学过按指令朗读：请下载完整模型：./run.sh fetch v3"),
        (r"small English demo voice", "小型英文演示声音 (small English demo voice)"),
        (r"miniature \((\S+) layout, untrained\)", r"未训练的迷你模型 (\1)"),
        (r"A small English demo voice.*", "这是内置的小型英文演示声音，由合成语音训练；要完整音质请下载模型：./run.sh fetch v3"),
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
        (r"(.+): choose an audio file", r"\1 不是音频文件：请选择音频文件"),
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
            return REFERENCE.sub(lambda at, m=match: _filled(m, at[0]), chinese)
    return None


def _filled(match: re.Match, place: str) -> str:
    """What stands for `\\1` (as it is) or `@1` (a sentence of its own) in the Chinese of a pattern."""
    value = match[int(place[1])]
    return (_by_pattern(value) or value) if place[0] == "@" else value
