"""Which language a text is in, as far as reading its numbers needs to know: by script, else by common words.

"und" means that it cannot be told; its digits are then left for the model, which knows more than a guess.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Collection

KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u30fc\u31f0-\u31ff\uff66-\uff9d]")
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af〇]")
SCRIPTS = (
    ("ko", re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
    ("ar", re.compile("[\u0600-\u06ff\u0750-\u077f]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
OTHER_SCRIPTS = re.compile("[\u0370-\u03ff\u0530-\u058f\u0900-\u0dff\u0e80-\u10ff\u1780-\u17ff]")
LONE_GREEK = re.compile(
    "(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0370-\u03ff](?![\u0370-\u03ff\u1f00-\u1fff])"
)  # of a formula or a unit
UKRAINIAN = re.compile("[іїєґІЇЄҐ]")

# Words that are frequent in one of these languages and rare or absent in the others.
_WORDS = {
    "en": "in on vs mon tue wed thu fri sat sun jan feb apr jun jul aug sep oct nov dec the of and is are was were to that it for with you have this has at be he she we they my your not but from or "
    "by what can will would there hello please i'm it's don't his her our their been which when who how all one if so "
    "out up about into than then them these some could other time two may like now people only over also back after use "
    "work first well way even new want because any give day most us good big small old long great right left high "
    "number chapter room call phone price cost costs per cents dollars pounds percent street floor "
    "level answer step model year years month months week weeks days hour hours "
    "second seconds am pm o'clock monday tuesday wednesday thursday friday saturday sunday january "
    "february march april june july august september october november december north south east west king queen world "
    "war speed temperature degrees miles feet inches yes thanks thank open close start stop turn go come see look say "
    "no off cup cups million billion thousand hundred point plus minus score said tell ask need buy bought sell get got make made take took run ran meet met born died wait click press type "
    "visit dial address order train flight gate car house home school bit more less many",
    "de": "der das und ist sind nicht ich du er sie wir ihr ein eine einen einem einer in mit auf für den dem des zu zum zur "
    "von vom bei sich auch wie aber noch nach am um uhr im hat haben habe kostet hoch wird werden kann über jahre jahr "
    "euro guten danke bitte ja nein war waren heute morgen",
    "fr": "le les et est sont je j tu il elle nous vous ils un une des du au aux avec pour dans sur ce cette c qui que ne "
    "pas ai ans l d y été être avoir mais ou où très bien merci bonjour chez euros heures va ça coûte",
    "es": "el los las y es son yo tú él ella nosotros un una unos del al con para por en que no se lo su tengo tiene hay "
    "años como más pero muy qué está hola gracias euros mi cuesta cuestan son",
    "it": "il gli le e è sono io tu lui lei noi un una uno di del della al alla con per in che non si lo ho hai ha anni come "
    "più ma molto ciao grazie questo euro mio costa costano sono nel nella ore alle dalla dei delle degli sul sulla quando dove perché anche",
    "pt": "o os e é são eu você ele ela nós um uma uns umas do da dos das ao com para por em que não se seu sua tenho tem "
    "anos como mais mas muito olá obrigado obrigada isso euros meu minha custa",
    "nl": "het een en is zijn ik jij hij zij wij niet met voor van op te dat die aan in ook maar heb heeft jaar euro naar "
    "hallo dank wordt kost deze",
    "pl": "i w na z jest są nie to się że do jak ale mam ma lat czy tak dla od po za złotych dzień dobry",
    "sv": "och är jag du han hon vi ett en att det som på inte med för har till av kronor år hej tack",
    "tr": "ve bir bu için ile ben sen var yok değil çok gibi kadar lira yaşında merhaba",
    "vi": "và là tôi của có không một những được người này cho với năm tuổi xin chào",
}
NAMES = {
    "ar": "Arabic", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "he": "Hebrew", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "sv": "Swedish",
    "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
WORDS = {language: frozenset(words.split()) for language, words in _WORDS.items()}
LETTERS = {
    "de": "äöüß", "fr": "àâçèéêëîïôûùœ", "es": "ñ¿¡áíóú", "it": "àèìòù", "pt": "ãõçâêáí", "pl": "ąćęłńśźż",
    "sv": "åäö", "tr": "ğışç", "vi": "ăđơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}  # fmt: skip


def detect(text: str, fallback: str = "en") -> str:
    """ISO 639-1 code of text; `fallback` when it holds no letter, "und" when its letters tell nothing.

    A few kana in a Chinese text (の) do not make it Japanese, a Latin name in it not English.
    """
    han, kana = len(HAN.findall(text)), len(KANA.findall(text))
    if kana and kana > 0.1 * han and not (han and kana == text.count("の")):
        return "ja"
    for language, script in SCRIPTS:
        found = len(script.findall(text))
        if found and found >= han:
            return "uk" if language == "ru" and UKRAINIAN.search(text) else language
    if han:
        return "en" if _quotes_chinese(text, han) else "zh"
    if OTHER_SCRIPTS.search(LONE_GREEK.sub(" ", text)):
        return "und"
    return _latin(text.lower(), fallback)


CHINESE_GRAMMAR = re.compile("[的了是在我你他她们不这那有和用把被就也都很吗呢吧]")


def _quotes_chinese(text: str, han: int) -> bool:
    """Whether text is English around a Chinese name or word; a few English names in Chinese are not."""
    words = [word.lower() for word in _latin_words(HAN.sub(" ", text)) if len(word) > 1]
    common = sum(word in WORDS["en"] for word in words) + (len(re.findall(r"\b[a-z]{2,}\b", text, re.ASCII)) > 2)
    needed = 2 if CHINESE_GRAMMAR.search(text) else 0.6
    return common >= 2 and len(words) > needed * han


# Words that stand in no English sentence but as a quotation: one of them tells a short text.
_SURE = {
    "de": "ich dich mich nicht bist ist wir sind gute guten danke bitte vielen herzlichen frohe geht geht's uhr tschüss hallo wiedersehen",
    "fr": "je j'ai t'aime c'est n'est qu'est merci bonjour bonsoir salut oui nous vous très avec êtes suis voudrais bonne",
    "es": "hola gracias buenos días buenas noches tardes estoy está usted muy eres quiero adiós llamo tengo mañana amo entiendo sé",
    "it": "grazie buongiorno buonasera buona sono arrivederci questo questa voglio chiamo stai sto capisco",
    "pt": "obrigado obrigada olá bom noite você não muito estou tudo",
    "nl": "goedemorgen goedendag ik heet jij bedankt alstublieft",
    "pl": "dzień dobry cześć dziękuję jestem nie się proszę",
    "sv": "hej jag heter är inte morgon så mycket",
    "tr": "merhaba teşekkür teşekkürler günaydın nasılsın evet hayır",
    "vi": "chào tôi",
    # no numbers are read in these, and no name is given
    "cs": "dobrý děkuji ahoj jsem",
    "fi": "hyvää päivää kiitos minä",
    "hu": "köszönöm szia vagyok",
    "no": "takk ikke jeg",
    "ro": "mulțumesc bună ziua",
}
SURE = {language: frozenset(words.split()) for language, words in _SURE.items()}
GREETING = frozenset().union(*SURE.values())  # German writes nouns with capitals, and Guten Tag is no name
# Said as they are by people who speak English, though words of them are in the tables.
LOANS = (
    "et tu brute", "c'est la vie", "que sera sera", "que será será", "bon appétit", "hasta la vista", "mi casa es su casa",
    "je ne sais quoi", "la vie en rose", "la dolce vita", "buenos aires",
)  # fmt: skip
LOAN = re.compile("|".join(rf"\b{loan}\b".replace(" ", r",?\s") for loan in LOANS), re.I)
LAUGHTER = re.compile(r"\b(h[aeio])(?:\s+\1)+\b", re.I)
QUOTED = re.compile('["“„«»][^"“”„«»]*["“”«»]')
_PARTICLES = (
    "von van vom der den dem das zu zum zur de du des di do dos da del della la las le les los el il y e et und"
)
PARTICLES = frozenset(_PARTICLES.split())


# Written in no other language here, so that they need no common word beside them.
TELLING = {"pl": "łżźśćńęą", "tr": "ğış", "vi": "ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹđơư"}


def unspoken(text: str, languages: Collection[str], *, goes_on: bool = False) -> str | None:
    """A language of text that is surely none of `languages`, "und" for letters that cannot be named; None: all may be spoken.

    Letters of another script decide by themselves, as do letters that no other language has. Else words do, but not those that
    any language may hold of another (see _own_words): one of SURE in six where no common word of `languages` stands beside it, or
    two common words more than there are of any of `languages`. goes_on: more of the text will come, so that one word decides
    nothing yet.
    """
    text = unicodedata.normalize("NFKC", text).replace("’", "'")
    letters = "".join(c if c.isalpha() else " " for c in text)  # ฿ is of no language
    if "zh" not in languages and "ja" not in languages and (HAN.search(letters) or KANA.search(letters)):
        return detect("".join(HAN.findall(letters) + KANA.findall(letters)))
    for language, script in SCRIPTS:
        if language not in languages and script.search(letters):
            return detect("".join(script.findall(letters)))
    if "es" not in languages and ("¿" in text or "¡" in text):
        return "es"
    if OTHER_SCRIPTS.search(letters) or any(_is_foreign_letter(c) for c in letters):
        return "und"
    words = text.split()
    for language, telling in TELLING.items():
        told = [word for word in words if any(c in telling for c in word.lower())]
        # A word with a capital may be a name.
        if (
            language not in languages
            and len(told) > max(1, len(words) // 4)
            and any(word[0].islower() for word in told)
        ):
            return language
    own = _own_words(text)
    scores = _latin_scores(text.lower())
    known = max((scores.get(language, 0) for language in languages), default=0)
    sure = {
        language: sum(word in telling for word in own)
        for language, telling in SURE.items()
        if language not in languages
    }
    likely = max(sure, key=sure.get, default=None)
    if likely and not goes_on and known < 1 and sure[likely] and 6 * sure[likely] >= len(own):
        return likely
    scores = {language: score for language, score in _latin_scores(" ".join(own)).items() if language not in languages}
    best = max(scores, key=scores.get, default=None)
    return best if best and scores[best] >= known + 2 else None


def _own_words(text: str) -> list[str]:
    """Words of text in lower case without what a text of any language may hold of another: quotations, if words are around them,
    LOANS, and names and titles, which are words with capitals and the PARTICLES between (Ursula von der Leyen, Los Gatos)."""
    around = QUOTED.sub(" ", text)
    text = LOAN.sub(" ", around if any(map(str.isalpha, around)) else text)
    cased = any(map(str.islower, text))
    own = []
    for clause in re.split(r"[.!?,;:…\n]+(?=\s|$)", text):
        words = _latin_words(clause)
        capitals = [i for i, word in enumerate(words) if cased and word[0].isupper()]
        names = {
            i
            for first, last in itertools.pairwise(capitals)
            if PARTICLES.issuperset(words[first + 1 : last])
            for i in range(first, last + 1)
        }
        own += [word.lower() for i, word in enumerate(words) if i not in names or word.lower() in GREETING]
    return own


def _is_foreign_letter(c: str) -> bool:
    """A letter outside the scripts that the functions above name; NFKC has made Latin of full-width and mathematical ones."""
    if not c.isalpha() or c.isascii() or HAN.match(c) or KANA.match(c) or any(script.match(c) for _, script in SCRIPTS):
        return False
    return not unicodedata.name(c, "").startswith(("LATIN", "MODIFIER", "FEMININE", "MASCULINE"))


def _latin_words(text: str) -> list[str]:
    """Words of text that may tell a language: no addresses, numbers, units or single letters."""
    text = re.sub(r"(?<!\S)\S+\.\S+", " ", text)
    text = re.sub(
        r"(?<!\S)\S*[@/\d]\S*(?:\s?(?:[kcmμn]?[mglWVAJ]|[kMGT]?(?:b|hz)|mmhg|lbs?|ft|oz|mph|min)\b)?",
        " ",
        text,
        flags=re.I,
    )
    text = LAUGHTER.sub(" ", "".join(c if c.isalpha() or c == "'" else " " for c in text))
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text)


def _latin_scores(text: str) -> dict[str, float]:
    """Common words of each language in lower-case text, its own letters as a part of one; {} where there is no word."""
    found_words = _latin_words(text)
    words = [word for word in found_words if len(word) > 1 or not word.isascii()]
    if not words:
        return {}
    tokens = {part for word in words for part in (word, *word.split("'"))}
    singles = {part for word in found_words for part in word.split("'") if len(part) == 1 and part.isascii()}
    scores = {}
    for language, common in WORDS.items():
        found = len({token for token in tokens & common if len(token) > 1 or not token.isascii()})
        scores[language] = found + 0.3 * len(singles & common) * bool(found)
    for language, letters in LETTERS.items():
        scores[language] += 0.6 * (scores[language] > 0) * any(c in text for c in letters)
    return scores


def _latin(text: str, fallback: str) -> str:
    scores = _latin_scores(text)
    if not scores:  # numbers, units and single letters only
        return fallback
    best = max(scores.values())
    likely = fallback if fallback in scores else "en"
    most = [language for language, score in scores.items() if score == best]
    if len(most) > 1 and (
        sure := [language for language in most if SURE.get(language, frozenset()) & set(_latin_words(text))]
    ):
        most = sure
    if best == 0:  # names and rare words only: one may stand in a text of the fallback's language, more may be anything
        words = {word for word in _latin_words(text) if len(word) > 1 or not word.isascii()}
        return fallback if len(words) == 1 and next(iter(words)).isascii() else "und"
    return likely if likely in most else most[0] if len(most) == 1 else "und"
