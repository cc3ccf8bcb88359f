"""Words of the door: why a call goes no further; part of words.WORDS."""

DOOR_WORDS: dict[str, tuple[str, str]] = {
    "login_first": (
        "Log in first: open the page, or send name and password.",
        "请先登录：打开页面，或随请求发送用户名与密码。",
    ),
    "calls_many": (
        "Too many calls in a short time: try again in {seconds} s.",
        "请求过于频繁：请在 {seconds} 秒后重试。",
    ),
    "connections_many": (
        "Too many connections are open: close some pages, and try again.",
        "打开的连接过多：请关闭一些页面后重试。",
    ),
    "foreign": (
        "This call comes from another site's page: open this page itself.",
        "该请求来自其他网站的页面：请直接打开本页面。",
    ),
    "not_here": ("This page does not offer that.", "本页面不提供此功能。"),
    "body_large": ("What was sent is larger than {mb} MB: shorten it.", "发送的内容超过 {mb} MB：请缩短。"),
    "body_slow": (
        "What was sent did not arrive within {seconds} s: try again with a smaller file.",
        "内容未在 {seconds} 秒内到达：请用更小的文件重试。",
    ),
    "no_room": (
        "There is no room for more files at the moment: try again in a few minutes.",
        "暂无空间存放更多文件：请几分钟后重试。",
    ),
    "metrics_here": (
        "The figures of a shared page are for its operator: ask from the machine itself, or start with --auth.",
        "公开页面的指标仅供管理者：请在本机查询，或启动时加 --auth。",
    ),
    "bad_type": ("{name} is of type {kind}: give {wanted}", "{name} 的类型是 {kind}：请给出{wanted}"),
    "a_text": ("a text", "文字"),
    "a_number": ("a number", "数字"),
    "a_choice": ("one of its choices", "其中一个选项"),
    "a_file": ("a file, with gradio_client.handle_file(path)", "文件，即 gradio_client.handle_file(path)"),
    "bad_any": (
        "an input cannot be used ({why}): see the page's API docs",
        "有输入无法使用（{why}）：请查看页面的 API 文档",
    ),
    "body_field": ("{field}: {why}", "{field} 无法使用（{why}）"),
    "body_whole": ("the body: {why}", "请求体无法使用（{why}）"),
    "post_only": (
        "Only POST is answered here: send a JSON body with input and voice",
        "此处只接受 POST：请发送含 input 和 voice 的 JSON",
    ),
    "why_missing": ("it is missing", "缺少此项"),
    "why_string_type": ("give a text", "请给出文字"),
    "why_string_unicode": ("it holds half a character", "含有不完整的字符"),
    "why_string_too_short": ("it is empty", "内容为空"),
    "why_string_too_long": ("it has more than {max_length} characters", "超过 {max_length} 个字符"),
    "why_float_type": ("give a number", "请给出数字"),
    "why_finite_number": ("give a finite number", "请给出有限的数字"),
    "why_int_type": ("give a whole number", "请给出整数"),
    "why_bool_type": ("give true or false", "请给出 true 或 false"),
    "why_greater_than_equal": ("{ge} is the lowest", "最小为 {ge}"),
    "why_less_than_equal": ("{le} is the highest", "最大为 {le}"),
    "why_less_than": ("it must be below {lt}", "须小于 {lt}"),
    "why_json_invalid": ("it is no JSON", "不是 JSON"),
    "why_other": ("it is not of the form that the README shows", "格式与 README 所示不符"),
    "body_long": (
        "the body is larger than {bytes} bytes: shorten it",
        "请求体超过 {bytes} 字节：请缩短",
    ),
    "format_unknown": ("response_format must be one of {kinds}", "response_format 只能是以下之一：{kinds}"),
    "consent_body": (
        'this page is shared: confirm with "consent": true that you may use this voice',
        '本页面已公开分享：请用 "consent": true 确认您有权使用该声音',
    ),
    "voice_unknown": ("no voice is called {name} (there are: {names})", "没有名为 {name} 的声音（现有：{names}）"),
    "no_address": (
        "A file is given as an address: nothing is fetched from the network, so upload the file itself.",
        "文件以网址给出：程序不会从网络读取，请直接上传文件。",
    ),
}
