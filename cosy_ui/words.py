"""What the page says, in English and Chinese; the browser's language chooses. Keys are ascii."""

from __future__ import annotations

import gradio as gr

WORDS: dict[str, tuple[str, str]] = {
    "reference": ("Reference clip", "参考音频"),
    "transcript": ("Words spoken in the clip", "参考音频的文字"),
    "transcript_hint": ("Exactly what is said in the clip, with punctuation", "与音频内容完全一致，含标点"),
    "text": ("Text to speak", "要合成的文本"),
    "text_hint": (
        "Any length up to 5,000 characters; long text is spoken sentence by sentence",
        "最长 5000 字，长文本按句合成",
    ),
    "mode": ("Mode", "模式"),
    "zero_shot": ("Clone with transcript", "零样本克隆"),
    "cross_lingual": ("Clone without transcript", "跨语种克隆"),
    "instruct": ("Speak as instructed", "指令控制"),
    "voice_conversion": ("Convert a recording", "语音转换"),
    "instruction": ("How to speak", "指令"),
    "instruction_hint": ("For example: Please say a sentence in a very soft voice.", "例如：请用广东话表达。"),
    "source": ("Recording whose words are kept", "要转换的录音"),
    "precision": ("Precision", "精度"),
    "stream": ("Stream: play while it is made", "流式播放"),
    "seed": ("Seed", "随机种子"),
    "seed_hint": ("Same seed, same audio; empty draws one", "相同种子得到相同音频；留空则随机"),
    "speed": ("Speed", "语速"),
    "speed_hint": ("Not available while streaming", "流式播放时不可用"),
    "settings": ("Settings", "设置"),
    "generate": ("Generate", "生成"),
    "stop": ("Stop (Esc)", "停止 (Esc)"),
    "result": ("Result (16-bit wav)", "结果（16 位 wav）"),
    "numbers": ("Numbers", "指标"),
}


def i18n() -> gr.I18n:
    return gr.I18n(
        en={key: english for key, (english, _) in WORDS.items()},
        zh={key: chinese for key, (_, chinese) in WORDS.items()},
    )
