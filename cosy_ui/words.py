"""What the page says, in English and Chinese. Labels follow the browser's language (gr.I18n), text that the server makes
follows the request's Accept-Language. Keys are ascii."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosy_ui.door_words import DOOR_WORDS
from cosy_ui.lab_words import LAB_WORDS

WORDS: dict[str, tuple[str, str]] = {
    # The clone tab, top to bottom
    "title": ("Clone a voice", "声音克隆"),
    "tab_clone": ("Clone", "克隆"),
    "tab_voices": ("Voices", "声音库"),
    "mode": ("What to do", "要做什么"),
    "zero_shot": ("Clone with transcript", "克隆（有文字）"),
    "cross_lingual": ("Clone without transcript", "克隆（无文字）"),
    "instruct": ("Speak as instructed", "按说明朗读"),
    "saved_voice": ("Saved voice", "已存声音"),
    "voice_conversion": ("Convert a recording", "转换录音"),
    "hint_zero_shot": (
        "Likeness is best this way. The transcript must hold the words of the clip.",
        "相似度最好；文字须与参考音频一致。",
    ),
    "hint_cross_lingual": (
        "No transcript needed; also for a text in another language than the clip.",
        "无需参考文字；文本语言可与参考音频不同。",
    ),
    "hint_instruct": ("Say in words how the text is to be spoken.", "用一句话说明朗读方式。"),
    "hint_saved_voice": ("Speak with a voice from the Voices tab.", "使用“声音库”中的声音。"),
    "hint_voice_conversion": ("The words of one recording in the voice of another.", "保留录音的内容，换成参考声音。"),
    "reference": ("Reference clip: 3–10 s of the voice", "参考音频：3–10 秒"),
    "paused_once": (
        "Playing paused once, because sound is made here more slowly than it is played. The files have no gap, and the next take starts a little later to avoid it.",
        "播放停顿了一次：此处生成声音慢于播放。文件本身没有间断，下一次会稍晚开始以避免停顿。",
    ),
    "paused_often": (
        "Playing paused {count} times, because sound is made here more slowly than it is played. The files have no gap, and the next take starts a little later to avoid it.",
        "播放停顿了 {count} 次：此处生成声音慢于播放。文件本身没有间断，下一次会稍晚开始以避免停顿。",
    ),
    "late_once": (
        "Playing paused once: sound is made fast enough here, but some of it arrived late, held up by other work or by the connection. The files have no gap, and the next take starts a little later to avoid it.",
        "播放停顿了一次：此处生成速度足够，但部分声音因其他任务或网络而迟到。文件本身没有间断，下一次会稍晚开始以避免停顿。",
    ),
    "late_often": (
        "Playing paused {count} times: sound is made fast enough here, but some of it arrived late, held up by other work or by the connection. The files have no gap, and the next take starts a little later to avoid it.",
        "播放停顿了 {count} 次：此处生成速度足够，但部分声音因其他任务或网络而迟到。文件本身没有间断，下一次会稍晚开始以避免停顿。",
    ),
    "examples": ("No clip at hand? Try", "没有录音？试试"),
    "example_bright": ("bright", "明亮 (bright)"),
    "example_low": ("low", "低沉 (low)"),
    "example_middle": ("middle", "中音 (middle)"),
    "example_soft": ("soft", "柔和 (soft)"),
    "voice": ("Saved voice", "已存声音"),
    "transcript": ("Words spoken in the clip", "参考音频的文字"),
    "transcript_hint": ("Exactly what is said, with punctuation", "与音频内容完全一致，含标点"),
    "words_gone": (
        "The words of the earlier clip were taken out of the box.",
        "前一段音频的文字已从框中移除。",
    ),
    "transcribe": ("Transcribe", "自动识别"),
    "transcribe_no_clip": ("Load a reference clip first.", "请先载入参考音频。"),
    "transcribe_off": ("Transcribe is off: {why}.", "自动识别不可用：{why}。"),
    "text": ("Text to speak", "要合成的文本"),
    "text_hint": ("Up to {chars} characters", "最多 {chars} 字"),
    "text_hint_shared": ("Up to {chars} characters on this shared page", "公开页面最多 {chars} 字"),
    "text_hint_any": ("in any language that the model speaks", "语言不限，模型会说即可"),
    "text_hint_only": ("this model speaks {languages} only", "此模型只会说{languages}"),
    "instruction": ("How to speak", "朗读方式"),
    "instruction_hint": ("For example: Please say a sentence in a very soft voice.", "例如：请用广东话表达。"),
    "source": ("Recording whose words are kept", "要转换的录音"),
    "generate": ("Generate", "生成"),
    "stop": ("Stop", "停止"),
    "keys": ("Ctrl+Enter generates, Esc stops.", "Ctrl+Enter 生成，Esc 停止。"),
    "settings": ("Settings: streaming, speed, seed, precision", "设置：流式、语速、种子、精度"),
    "precision": ("Precision", "精度"),
    "tier": ("CUDA Graph", "CUDA Graph"),
    "eager": ("Off (eager)", "关 (eager)"),
    "graph": ("On (graph)", "开 (graph)"),
    "fused": ("On, fused (fused)", "开，融合 (fused)"),
    "stream": ("Stream: play while it is made", "流式：边生成边播放"),
    "stream_hint": (
        "You hear it from the first second of speech on. A text of a few words is nearly made by then, so it comes hardly sooner.",
        "约一秒语音生成后即开始播放；只有几个字时此刻已接近完成，提前不多。",
    ),
    "seed": ("Seed", "随机种子"),
    "seed_drawn": (
        "Drawn anew for every take, so each one differs. Type a number, or tick the box, to keep it.",
        "每次生成都重新抽取，结果各不相同；填写数字或勾选“固定种子”即可保持不变。",
    ),
    "seed_kept": (
        "Kept: the same inputs give the same audio again. Untick the box to draw a new one for every take.",
        "已固定：相同输入得到相同音频；取消勾选则每次重新抽取。",
    ),
    "lock": ("Keep this seed", "固定种子"),
    "dice": ("Draw a seed", "随机抽取种子"),
    "speed": ("Speed", "语速"),
    "speed_hint": ("Off while streaming: switch Stream off first", "流式时不可用，请先关闭流式"),
    "speed_hint_on": ("0.5 is slow, 2 is fast", "0.5 最慢，2 最快"),
    "result": ("Result (16-bit wav)", "结果（16 位 wav）"),
    "result_of": ("Take {number} (16-bit wav)", "第 {number} 次（16 位 wav）"),
    "earlier": ("The take before", "之前的结果"),
    "fallback": ("Playing while it is made", "边生成边播放"),
    "consent": ("I may use this voice", "我有权使用该声音"),
    "consent_line": (
        "This page is shared: clone only a voice that is yours or whose owner agreed.",
        "本页面已公开分享：请只克隆自己的或已获授权的声音。",
    ),
    "consent_missing": (
        "Please confirm first that you may use this voice: tick the box above the button.",
        "请先在按钮上方勾选，确认您有权使用该声音。",
    ),
    "please_check": ("Please check", "请检查"),
    "no_session": (
        "This call comes from no open page: open the page first, or use the endpoint /clone.",
        "该请求不属于任何打开的页面：请先打开页面，或使用接口 /clone。",
    ),
    # The clip's card
    "file_large": (
        "{name} is larger than {mb} MB: cut out 3 to 10 s of it, or save it as mp3.",
        "{name} 超过 {mb} MB：请截取 3–10 秒，或另存为 mp3。",
    ),
    "clip_empty": (
        "Drop a file above, or record. What was heard will be shown here.",
        "请在上方拖入文件或录音，这里将显示分析结果。",
    ),
    "clip_play": ("Play this part", "试听选段"),
    "clip_part": ("Part that is used", "使用的选段"),
    "clip_start": ("Start of the part", "选段起点"),
    "clip_end": ("End of the part", "选段终点"),
    "clip_move": (
        "The clip is {seconds} s long. The lit part is used: drag it, click elsewhere, or use the arrow keys.",
        "音频长 {seconds} 秒。只使用高亮选段：可拖动、点击其他位置或用方向键调整。",
    ),
    "source_heard": ("{seconds} s of sound; its words are kept.", "时长 {seconds} 秒，保留其内容。"),
    "clip_none": ("There is no speech in the clip; its beginning is lit.", "未检测到语音；高亮为开头部分。"),
    "fact_length": ("Length", "时长"),
    "fact_rate": ("Rate", "采样率"),
    "fact_level": ("Speech level", "语音电平"),
    "fact_speech": ("Speech", "语音占比"),
    "fact_clipping": ("Clipping", "削波"),
    "fact_noise": ("Noise", "噪声"),
    "v_good": ("Good reference", "参考音频良好"),
    "v_short": ("Short: 3 to 10 s give a better likeness", "偏短：3–10 秒相似度更好"),
    "v_long": ("Long: drag the part to its best 10 s", "偏长：请拖动选段到最佳的 10 秒"),
    "v_no_speech": (
        "No speech was found: choose a clip in which the voice speaks",
        "未检测到语音：请选择有人说话的音频",
    ),
    "v_little_speech": ("Mostly pauses: choose a part with more speech", "停顿过多：请选择语音更多的选段"),
    "v_quiet": ("Quiet: record closer to the microphone", "音量偏小：请靠近麦克风录制"),
    "v_clipped": ("Distorted by too high a level: record more softly", "音量过大导致失真：请降低音量重录"),
    "v_noisy": ("Noisy: the noise will be heard in the output too", "噪声较大：输出中也会听到噪声"),
    "v_low_rate": ("Recorded below 16 kHz: the output will sound dull", "采样率低于 16 kHz：输出会发闷"),
    "v_clicks": (
        "Clicks or crackles: record it again, or choose a part without them",
        "有咔嗒声或爆音：请重新录制，或选择没有这些声音的选段",
    ),
    "v_narrow_band": (
        "Nothing above 4 kHz, as on a telephone: the output will sound dull",
        "4 kHz 以上无内容（类似电话音质）：输出会发闷",
    ),
    "v_ends_in_speech": (
        "Breaks off while the voice speaks: move the end to a pause",
        "结尾处话未说完：请把终点移到停顿处",
    ),
    "part_words": (
        "Only {start}–{end} s of the clip is used: keep only the words of that part here.",
        "只使用音频的 {start}–{end} 秒：此处只保留该选段的文字。",
    ),
    # Under the text
    "parts": ("{count} parts, spoken one after another", "共 {count} 段，依次合成"),
    "part_pause": ("pause {seconds} s", "停顿 {seconds} 秒"),
    "marks": ("Insert", "插入"),
    "marks_other": ("More sounds", "更多声音"),
    "marks_more": ("Pronunciation marks", "发音标记"),
    "marks_more_hint": (
        "CMU phones and pinyin in brackets replace a word, for example [h][ǎo].",
        "用方括号内的 CMU 音素或拼音代替文字，例如 [h][ǎo]。",
    ),
    # While it runs, and after
    "idle": ("Ready.", "就绪。"),
    "starting": ("Starting …", "正在开始 …"),
    "waiting": ("Waiting: place {place} in the queue", "排队中：第 {place} 位"),
    "waiting_about": ("about {seconds} s", "约 {seconds} 秒"),
    "speaking": ("Speaking", "合成中"),
    "segment_of": ("part {part} of {parts}", "第 {part}/{parts} 段"),
    "audio_after": ("{audio} s of audio after {elapsed} s", "已用 {elapsed} 秒，生成 {audio} 秒音频"),
    "loading_again": (
        "Loading the model again: it was unloaded while nobody used it …",
        "正在重新加载模型（空闲时已卸载）…",
    ),
    "warming": (
        "warming up ({done} of {total}): this one runs eagerly",
        "预热中（{done}/{total}）：本次以 eager 运行",
    ),
    "done": ("Done in {seconds} s.", "完成，用时 {seconds} 秒。"),
    "stopped": ("Stopped.", "已停止。"),
    "stopped_kept": ("Stopped; the {seconds} s made so far are kept.", "已停止；已生成的 {seconds} 秒已保留。"),
    "m_first_server": ("First audio, server", "首段音频（服务器）"),
    "m_first_browser": ("First sound, this browser", "开始发声（本浏览器）"),
    "m_rtf": ("Speed", "速度"),
    "even": ("As fast as real time", "与实时相当"),
    "faster": ("{times}× faster than real time", "比实时快 {times} 倍"),
    "slower": ("{times}× slower than real time", "比实时慢 {times} 倍"),
    "rtf": ("RTF {rtf} = compute / audio", "RTF {rtf} = 计算/音频"),
    "m_more": ("More numbers", "更多指标"),
    "m_token": ("Per token", "每 token"),
    "m_audio": ("Audio", "音频时长"),
    "m_run": ("Ran as", "运行方式"),
    "m_rows": ("Rows in batch", "批内行数"),
    "m_seed": ("Seed", "种子"),
    "m_retries": ("Retries", "重试"),
    "m_mode": ("Mode", "模式"),
    "m_not_played": ("not streamed", "非流式"),
    "save_as": ("Save as", "下载"),
    "srt": ("Subtitles (SRT)", "字幕 (SRT)"),
    "sentences": ("Parts of this take", "分段"),
    "redo": ("Redo", "重做"),
    "redo_label": ("Speak part {part} once more", "重新合成第 {part} 段"),
    "redo_of": ("part {part} spoken again", "第 {part} 段已重做"),
    "result_empty": ("Your voice will be heard here.", "合成结果会显示在这里。"),
    "history": ("This session", "本次会话"),
    "history_empty": (
        "Every take of this session is kept here until the page is closed.",
        "本次会话的结果保存在这里，关闭页面即清除。",
    ),
    "history_zip": ("All as zip", "全部打包下载"),
    "take": ("Take {number}", "第 {number} 次"),
    "use_settings": ("Copy settings", "复制设置"),
    "copied": ("Settings of take {number} are in the form.", "已把第 {number} 次的设置填入表单。"),
    "copied_no_clip": (
        "Settings of take {number} are in the form; its clip is gone, upload it again.",
        "已填入第 {number} 次的设置；其参考音频已清除，请重新上传。",
    ),
    # Two sounds as A and B, here and in the Compare tab
    "ab_title": ("Compare two takes", "对比两次结果"),
    "ab_hint": (
        "Both play at once and one is heard: switch between A and B without losing the place.",
        "两者同时播放，只听其一：可随时在 A 与 B 之间切换，位置不变。",
    ),
    "ab_take": ("Take that is {side}", "{side} 的结果"),
    "ab_heard": ("Which one is heard", "正在听的结果"),
    "ab_place": ("Place in the sound", "播放位置"),
    "ab_hide": ("Blind: hide which is which", "盲听：隐藏名称"),
    "ab_play": ("Play", "播放"),
    "ab_pause": ("Pause", "暂停"),
    "ab_prefer": ("I prefer {name}", "{name} 更好"),
    "ab_same": ("I hear no difference", "听不出差别"),
    "ab_new": ("Draw again", "重新抽取"),
    "ab_is": ("A is {a}, B is {b}.", "A 是 {a}，B 是 {b}。"),
    "ab_score": ("Answers so far: {score}", "累计结果：{score}"),
    "take_gone": ("That take is no longer kept: generate it again.", "该结果已清除：请重新生成。"),
    # Voices tab
    "voices_intro": (
        "A saved voice holds features of a clip and its transcript, not the recording. It is private to this page and gone when the page closes: export it to keep it.",
        "已存声音只含特征与文字，不含录音；仅本页可见，关闭即清除，请导出保存。",
    ),
    "voice_name": ("Name", "名称"),
    "voice_name_hint": ("For the clip that is now in the Clone tab", "对应“克隆”页中的当前参考音频"),
    "voice_save": ("Save this voice", "保存声音"),
    "voice_import": ("Import a voice file", "导入声音文件"),
    "voices_empty": (
        "No voices yet. Load a clip in the Clone tab, then name and save it here.",
        "还没有声音。请在“克隆”页载入音频，然后在此命名并保存。",
    ),
    "voices_none": ("No voice is saved yet: save one in the Voices tab.", "尚无已存声音：请先在“声音库”保存。"),
    "voice_no_clip": ("Load a reference clip in the Clone tab first.", "请先在“克隆”页载入参考音频。"),
    "voice_no_name": ("Give the voice a name first.", "请先填写名称。"),
    "voice_saved": (
        "“{name}” is saved; press Use, or choose it under Saved voice.",
        "“{name}”已保存：点“使用”，或在“已存声音”中选用。",
    ),
    "voice_imported": (
        "“{name}” is imported; press Use, or choose it under Saved voice.",
        "“{name}”已导入：点“使用”，或在“已存声音”中选用。",
    ),
    "voice_renamed": (
        "“{name}” was taken already, and nothing is replaced.",
        "“{name}”已有同名声音，原有声音保持不变。",
    ),
    "voice_deleted": ("“{name}” is deleted.", "“{name}”已删除。"),
    "undo": ("Undo", "撤销"),
    "voice_back": ("“{name}” is back.", "“{name}”已恢复。"),
    "voices_choose": (
        "Examples, and what is saved in the Voices tab or shared by the operator",
        "示例、“声音库”中保存的或由管理者共享的声音",
    ),
    "voice_gone": ("That voice is no longer kept: import it again.", "该声音已清除：请重新导入。"),
    "voice_shared": ("shared", "共享"),
    "voice_example": ("example", "示例"),
    "voice_mine": ("yours", "私有"),
    "voice_seconds": ("{seconds} s", "{seconds} 秒"),
    "voice_words": ("with transcript", "含文字"),
    "voice_no_words": ("without transcript", "无文字"),
    "voice_use": ("Use", "使用"),
    "voice_export": ("Export", "导出"),
    "voice_delete": ("Delete", "删除"),
    "voice_api": ("API id", "API 标识"),
    "loaded": ("{name} on {device}", "{name}，运行于 {device}"),
    "numbers_by": ("numbers read by {backend}", "数字由 {backend} 朗读"),
} | LAB_WORDS
WORDS |= DOOR_WORDS


def i18n() -> gr.I18n:
    """The browser's words."""
    return gr.I18n(
        en={key: english for key, (english, _) in WORDS.items()},
        zh={key: chinese for key, (_, chinese) in WORDS.items()},
    )


def language(request: Any) -> str:
    """ "zh" when the first language that the request accepts is Chinese, else "en"."""
    accepts = (getattr(request, "headers", None) or {}).get("accept-language") or ""
    return "zh" if accepts.strip().lower().startswith("zh") else "en"


def say(key: str, lang: str, **values: Any) -> str:
    """The words of a key in a language, with values filled in."""
    english, chinese = WORDS[key]
    return (chinese if lang == "zh" else english).format(**values)
