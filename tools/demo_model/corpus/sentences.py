"""Make English sentences for a small text-to-speech corpus.

Sources: our own templates and word lists (this file), WordNet 3.0 (parts of
speech, sense counts and usage examples), SCOWL word lists (which words are
common), and the United States Declaration of Independence and Constitution
(public domain).  Every number is spelled out.

    python -m tools.demo_model.corpus.sentences --count 20000 --seed 1 --out sentences.jsonl
       [--wordnet DIR] [--scowl DIR] [--state DIR]
"""

# ruff: noqa: SIM905, RUF005 - a word list reads best as words
import argparse
import gzip
import json
import os
import random
import re
from collections import Counter, defaultdict
from pathlib import Path

BLOCK = re.compile(
    r"\b(sex\w*|rape\w*|nigg\w*|fuck\w*|shit\w*|bitch\w*|whore\w*|slut\w*|porn\w*|nazi\w*|suicid\w*|murder\w*|kill\w*|"
    r"naked|nude|penis|vagina\w*|breasts?|erotic\w*|prostitut\w*|damn\w*|bastard\w*|negro\w*|jews?|jewish|muslims?|"
    r"islam\w*|gay|lesbian\w*|homosexual\w*|terroris\w*|bomb\w*|drugs?|heroin|cocaine|slaves?|slavery|lynch\w*|corpse\w*|"
    r"torture\w*|genital\w*|urin\w*|feces|fecal|excre\w*|semen|orgasm\w*|incest\w*|pedophil\w*|abort\w*|cancer\w*|"
    r"retard\w*|idiots?|moron\w*|crippl\w*|lust\w*|seduc\w*|mistress\w*|hell|hitler|stalin|execut\w*|molest\w*|"
    r"intercourse|virgin\w*|pregnan\w*|savages?|indians?|blacks?|whites?|chinks?|dagos?|gypsy|gypsies|orientals?|"
    r"fat|ugly|stupid|dumb|died?|dead|deaths?|guns?|shot|shoot\w*|ass|arse|sleeps around|queer\w*|tits?|cock|dick|bra|womb)\b",
    re.I,
)

# not in the examples taken from WordNet
AVOID = re.compile(
    r"\b(politic\w*|prison\w*|communis\w*|soviets?|fascis\w*|nuclear|iraq\w*|israel\w*|arabs?|palestin\w*|hostages?|chinese|china|"
    r"russia\w*|germans?|god|christ\w*|church|catholic\w*|race|racial|racis\w*|disease\w*|blood\w*|stab\w*|wound\w*|attack\w*|enem\w*|"
    r"wars?|soldiers?|troops|weapon\w*|drunk\w*|whisky|liquor|marijuana|hang(ed|ing)?|hate[sd]?|tumou?r\w*|terminal|abus\w*|beat(en|ing)?)\b",
    re.I,
)

FIRST = """Anna Ben Clara David Emma Frank Grace Henry Isla Jack Kate Leo Maria Nathan Olivia Peter Quinn Rachel Sam Tina
Umar Vera Walter Xenia Yusuf Zoe Alice Brian Carlos Diana Edward Fiona George Hannah Ivan Julia Kevin Laura Martin Nora
Oscar Paula Robert Sarah Thomas Ursula Victor Wendy Andrew Bella Charles Daisy Eric Felix Gina Hugo Irene James Karen
Lucas Megan Nina Oliver Priya Ravi Sofia Theo Violet William Yara Amir Bianca Chloe Dylan Elena Farid Gloria Harry Ingrid
Jonas Kim Liam Michelle Noah Omar Pedro Rosa Simon Teresa Vincent Winston Ethan Joyce Patrick Audrey Marcus Stella""".split()
LAST = """Smith Jones Taylor Brown Wilson Evans Thomas Roberts Walker Wright Robinson Thompson White Hughes Green Hall Lewis
Harris Clarke Patel Jackson Wood Turner Martin Cooper Hill Ward Morris Moore Clark Baker Allen Bell Murphy Bailey Cox
Miller Davis Shaw Simpson Marshall Anderson Wilkinson Collins Foster Rogers Stone Brooks Kennedy Garcia Nguyen Fischer
Rossi Kowalski Johansson Yamamoto Silva Okafor Hassan Petrov Larsen Novak Mendoza Fitzgerald Montgomery""".split()
CITY = (
    """London Paris Berlin Madrid Rome Vienna Dublin Oslo Helsinki Warsaw Prague Lisbon Athens Brussels Amsterdam
Copenhagen Stockholm Budapest Geneva Zurich Munich Hamburg Milan Naples Barcelona Edinburgh Glasgow Manchester Liverpool
Birmingham Bristol Oxford Cambridge York Boston Chicago Denver Seattle Portland Houston Dallas Austin Atlanta Miami
Toronto Montreal Vancouver Sydney Melbourne Auckland Tokyo Osaka Seoul Beijing Shanghai Singapore Bangkok Mumbai Delhi
Cairo Nairobi Lagos Lima Bogota Santiago Havana Istanbul Jerusalem Dubai Philadelphia Washington Sacramento""".split()
    + [
        "New York",
        "Los Angeles",
        "San Francisco",
        "Hong Kong",
        "Cape Town",
        "Mexico City",
        "Rio de Janeiro",
        "Buenos Aires",
    ]
)
COUNTRY = (
    """France Germany Spain Italy Austria Ireland Norway Finland Poland Portugal Greece Belgium Denmark Sweden
Hungary Switzerland England Scotland Wales Canada Australia Japan Korea China India Egypt Kenya Nigeria Peru Colombia
Chile Cuba Turkey Brazil Mexico Argentina Iceland Croatia Vietnam Thailand Indonesia Morocco Ukraine Romania""".split()
    + ["New Zealand", "South Africa", "the Netherlands", "the United States", "the United Kingdom"]
)
MONTH = "January February March April May June July August September October November December".split()
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COLOR = "red blue green yellow orange purple brown grey black white pink silver golden turquoise violet scarlet".split()
FOOD = """bread cheese soup rice pasta salad chicken fish beef pork eggs butter yogurt chocolate honey sugar coffee tea
milk juice apples oranges bananas grapes cherries peaches pears strawberries raspberries lemons potatoes tomatoes carrots
onions mushrooms spinach cabbage beans peas noodles pancakes sandwiches biscuits cake pie pizza sausages peppers garlic
ginger cinnamon vanilla almonds walnuts pineapple mango cucumber pumpkin zucchini broccoli""".split()
ANIMAL = """dog cat horse cow sheep goat pig rabbit fox wolf bear lion tiger elephant giraffe zebra monkey mouse squirrel
owl eagle robin pigeon parrot penguin duck goose swan frog turtle snake lizard dolphin whale shark octopus spider bee
butterfly beetle hedgehog badger otter beaver camel donkey kangaroo crocodile ostrich leopard""".split()
PLACE = """kitchen garden office library museum station airport hospital school university market bakery restaurant hotel
theatre church castle bridge harbour beach forest mountain valley village farm factory park stadium supermarket pharmacy
bank cinema gallery workshop laboratory lighthouse playground courtyard basement attic balcony corridor classroom""".split()
JOB = """teacher doctor nurse engineer farmer baker painter singer writer driver pilot sailor lawyer judge dentist
gardener carpenter plumber electrician chef waiter barber tailor butcher journalist photographer scientist professor
librarian mechanic architect musician actor dancer athlete firefighter policeman secretary manager director captain
translator programmer designer sculptor historian astronomer geologist chemist physicist""".split()
FAMILY = """mother father sister brother aunt uncle cousin grandmother grandfather neighbour friend daughter son nephew
niece boss colleague roommate landlord classmate wife husband""".split()
THING = """book pen table chair lamp window door key phone clock watch mirror bottle cup plate spoon knife bowl basket
box bag coat hat shoe scarf glove umbrella blanket pillow towel candle carpet picture letter newspaper magazine ticket
wallet camera guitar piano violin drum bicycle car truck bus train boat ship airplane ladder hammer rope bucket shovel
computer keyboard screen printer radio television fridge oven kettle toaster vase necklace ring bracelet jacket sweater
notebook envelope suitcase backpack telescope microscope thermometer calculator battery engine machine treasure""".split()
ADJ = """small large old young new beautiful strange quiet loud bright dark heavy light warm cold gentle brave clever
curious famous friendly generous honest lazy lonely lucky nervous patient polite proud quick rich rough sharp shy silly
simple smooth soft strong sweet tall thick thin tiny tired weak wet wild wise wooden broken clean dirty dusty empty
enormous excellent expensive fancy fresh frozen funny hollow huge hungry important invisible jealous mysterious narrow
ordinary perfect pleasant precious rare rusty serious shallow shiny slippery splendid square stubborn sturdy sudden
terrible thirsty useful valuable wonderful yellow""".split()
ADV = """slowly quickly quietly carefully happily gently suddenly easily finally often usually rarely always never
sometimes probably certainly clearly simply nearly badly bravely calmly eagerly exactly gladly honestly kindly lazily
loudly nervously patiently politely proudly secretly seriously silently softly warmly wisely""".split()
VT = [
    ("open", "opened"),
    ("close", "closed"),
    ("carry", "carried"),
    ("find", "found"),
    ("lose", "lost"),
    ("buy", "bought"),
    ("sell", "sold"),
    ("bring", "brought"),
    ("take", "took"),
    ("repair", "repaired"),
    ("paint", "painted"),
    ("clean", "cleaned"),
    ("wash", "washed"),
    ("move", "moved"),
    ("watch", "watched"),
    ("choose", "chose"),
    ("draw", "drew"),
    ("borrow", "borrowed"),
    ("hide", "hid"),
    ("steal", "stole"),
    ("throw", "threw"),
    ("catch", "caught"),
    ("measure", "measured"),
    ("describe", "described"),
    ("remember", "remembered"),
    ("forget", "forgot"),
    ("examine", "examined"),
    ("deliver", "delivered"),
    ("discover", "discovered"),
    ("build", "built"),
    ("design", "designed"),
    ("push", "pushed"),
    ("pull", "pulled"),
    ("lift", "lifted"),
    ("drop", "dropped"),
    ("photograph", "photographed"),
    ("admire", "admired"),
    ("replace", "replaced"),
    ("weigh", "weighed"),
    ("wrap", "wrapped"),
    ("collect", "collected"),
    ("polish", "polished"),
    ("hold", "held"),
]
VI = [
    ("laugh", "laughed"),
    ("smile", "smiled"),
    ("sing", "sang"),
    ("dance", "danced"),
    ("sleep", "slept"),
    ("wait", "waited"),
    ("arrive", "arrived"),
    ("leave", "left"),
    ("run", "ran"),
    ("walk", "walked"),
    ("swim", "swam"),
    ("jump", "jumped"),
    ("fall", "fell"),
    ("listen", "listened"),
    ("talk", "talked"),
    ("whisper", "whispered"),
    ("shout", "shouted"),
    ("work", "worked"),
    ("rest", "rested"),
    ("return", "returned"),
    ("travel", "travelled"),
    ("disappear", "disappeared"),
    ("sit", "sat"),
    ("stand", "stood"),
    ("cry", "cried"),
    ("play", "played"),
    ("stop", "stopped"),
    ("hesitate", "hesitated"),
]
TOPIC = """the weather; the economy; climate change; public transport; space exploration; modern art; ancient history;
classical music; healthy food; renewable energy; machine learning; speech synthesis; artificial intelligence; local
politics; international trade; computer science; deep sea fishing; the housing market; organic farming; higher education;
the royal family; road safety; the football season; the film festival; rising prices; water shortages; electric cars;
quantum physics; marine biology; gardening; chess; photography; mountain climbing; the school budget; tourism""".replace(
    "\n", " "
).split("; ")
SPORT = "football tennis basketball cricket rugby golf hockey baseball volleyball badminton swimming skiing cycling rowing chess".split()
UNIT = "metres kilometres miles kilograms grams pounds litres degrees minutes hours days weeks months years dollars euros percent".split()
SHORT = """Yes.|No.|Hello.|Hello there.|Hi.|Hey, you.|Good morning.|Good afternoon.|Good evening.|Good night.|Goodbye.|See you later.|
See you tomorrow.|Thank you.|Thank you very much.|Thanks a lot.|You are welcome.|Excuse me.|I am sorry.|No problem.|
Of course.|Yes, of course.|Not at all.|Maybe later.|I agree.|I disagree.|I don't know.|I think so.|I hope so.|Never mind.|
Be careful.|Hurry up.|Wait a minute.|Just a moment, please.|Come in.|Sit down, please.|Follow me.|Let's go.|Look at that!|
Listen carefully.|What a surprise!|How wonderful!|That's amazing!|Are you sure?|Really?|Why not?|What happened?|Who is there?|
Where are you?|How are you?|How old are you?|What's your name?|What time is it?|Can you help me?|Can you hear me?|
Do you understand?|Is that true?|What do you mean?|Happy birthday!|Congratulations!|Well done.|Good luck.|Take care.|
Hello, world.|Hello world!|This is a test.|Testing, one, two, three.|One, two, three, four, five.|
The quick brown fox jumps over the lazy dog.|Welcome to the demonstration.|Nice to meet you.|It's my pleasure.|
I love you.|I miss you.|Good idea.|Absolutely not.|That sounds great.|Here we go.|All right then.|Have a nice day.|
Please try again.|Please say that again.|Turn it off.|It works.|It's raining.|I'm hungry.|I'm tired.|She's right.|
They're here.|We won.|He can't come.|Don't worry.|Keep going.|Nothing, really.|Once upon a time.|The end.""".replace(
    "\n", ""
).split("|")
TWIST = """She sells sea shells by the sea shore.|Peter Piper picked a peck of pickled peppers.|How much wood would a
woodchuck chuck if a woodchuck could chuck wood?|Red lorry, yellow lorry.|Six thick thistle sticks.|
A proper copper coffee pot.|Which witch wished which wicked wish?|Fresh fried fish, fish fresh fried.|
Pack my box with five dozen liquor jugs.|How vexingly quick daft zebras jump!|The five boxing wizards jump quickly.|
Sphinx of black quartz, judge my vow.|The beige hue on the waters of the loch impressed all.|
With tenure, Suzie would have all the more leisure for yachting.|Are those shy Eurasian footwear, cowboy chaps, or
jolly earth moving headgear?|The birch canoe slid on the smooth planks.""".replace("\n", " ").split("|")

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
ORD = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def num(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        r = n % 100
        return ONES[n // 100] + " hundred" + (" and " + num(r) if r else "")
    if n < 1000000:
        r = n % 1000
        return num(n // 1000) + " thousand" + ((" and " if r < 100 else " ") + num(r) if r else "")
    r = n % 1000000
    return num(n // 1000000) + " million" + (" " + num(r) if r else "")


def ordinal(n):
    w = num(n)
    head, sep, last = w.rpartition("-") if "-" in w else w.rpartition(" ")
    last = ORD.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return head + sep + last


def year(r):
    y = r.choice([r.randint(1100, 1999), r.randint(1900, 2030)])
    if 2000 <= y < 2010:
        return "two thousand" + (" and " + num(y - 2000) if y > 2000 else "")
    a, b = divmod(y, 100)
    return num(a) + (" hundred" if b == 0 else " oh " + num(b) if b < 10 else " " + num(b))


def article(w):
    return (
        "an "
        if (w[0].lower() in "aeiou" and not w.startswith(("uni", "use", "eu", "one")))
        or w.startswith(("honest", "hour"))
        else "a "
    ) + w


def plural(n):
    if n.endswith(("s", "x", "z", "ch", "sh")):
        return n + "es"
    if n.endswith("y") and n[-2] not in "aeiou":
        return n[:-1] + "ies"
    return {
        "mouse": "mice",
        "goose": "geese",
        "sheep": "sheep",
        "knife": "knives",
        "wolf": "wolves",
        "child": "children",
        "policeman": "policemen",
    }.get(n, n + "s")


def third(v):
    if v.endswith(("s", "x", "z", "ch", "sh", "o")):
        return v + "es"
    if v.endswith("y") and v[-2] not in "aeiou":
        return v[:-1] + "ies"
    return v + "s"


class Maker:
    def __init__(self, r, nouns, adjs, verbs, advs):
        self.r = r
        self.nouns, self.adjs, self.verbs, self.advs = nouns, adjs, verbs, advs

    def c(self, xs):
        return self.r.choice(xs)

    def noun(self):
        k = self.r.random()
        if k < 0.45 and self.nouns:
            return self.c(self.nouns)
        return self.c(self.c([THING, ANIMAL, JOB, PLACE]))

    def adj(self):
        return self.c(self.adjs) if self.adjs and self.r.random() < 0.4 else self.c(ADJ)

    def adv(self):
        return self.c(self.advs) if self.advs and self.r.random() < 0.3 else self.c(ADV)

    def np(self, indef=None):
        r = self.r
        n = self.noun()
        mods = [] if r.random() < 0.35 else [self.adj()] if r.random() < 0.8 else [self.adj(), self.c(COLOR)]
        k = r.random() if indef is None else (0.9 if indef else 0.1)
        body = " ".join(mods + [n])
        if k < 0.45:
            return "the " + body
        if k < 0.6:
            return self.c(["my", "your", "his", "her", "our", "their", "this", "that", "every", "another"]) + " " + body
        if k < 0.7:
            return (
                self.c([num(r.randint(2, 20)), "several", "many", "a few", "some", "most of the", "all the"])
                + " "
                + " ".join(mods + [plural(n)])
            )
        return article(body)

    def subj(self):
        k = self.r.random()
        if k < 0.25:
            return self.c(FIRST)
        if k < 0.45:
            return self.c(["my ", "her ", "his ", "our ", "their "]) + self.c(FAMILY)
        if k < 0.6:
            return self.c(["he", "she", "they", "we", "I", "it", "nobody", "everyone", "someone"])
        return "the " + (self.adj() + " " if self.r.random() < 0.6 else "") + self.c(self.c([JOB, ANIMAL, FAMILY]))

    def place(self):
        k = self.r.random()
        prep = self.c(["in", "near", "behind", "outside", "at", "next to", "opposite", "close to", "inside"])
        if k < 0.6:
            return prep + " the " + (self.adj() + " " if self.r.random() < 0.4 else "") + self.c(PLACE)
        if k < 0.8:
            return "in " + self.c(CITY)
        return (
            self.c(["under", "above", "on", "behind", "beside", "against", "around", "beyond"])
            + " the "
            + self.c(THING)
        )

    def when(self):
        r = self.r
        return self.c(
            [
                lambda: "on " + self.c(DAY) + self.c(["", " morning", " evening", " afternoon", " night"]),
                lambda: "in " + self.c(MONTH),
                lambda: "last " + self.c(["week", "month", "year", "night", "summer", "winter"]),
                lambda: "yesterday" + self.c(["", " morning", " evening"]),
                lambda: num(r.randint(2, 60)) + " " + self.c(["minutes", "hours", "days", "weeks", "years"]) + " ago",
                lambda: "at " + self.time(),
                lambda: "in " + year(r),
                lambda: "on the " + ordinal(r.randint(1, 31)) + " of " + self.c(MONTH),
                lambda: (
                    "during the "
                    + self.c(["meeting", "storm", "holidays", "war", "concert", "lesson", "game", "night", "journey"])
                ),
            ]
        )()

    def time(self):
        r = self.r
        h = num(r.randint(1, 12))
        return self.c(
            [
                h + " o'clock",
                "half past " + h,
                "a quarter to " + h,
                "a quarter past " + h,
                h + " " + num(r.choice([10, 15, 20, 25, 30, 35, 40, 45, 50, 55])),
                num(r.randint(2, 29)) + " minutes past " + h,
                h + " " + self.c(["a m", "p m"]),
                "noon",
                "midnight",
            ]
        )

    def vp_past(self):
        r = self.r
        k = r.random()
        if k < 0.5:
            s = self.c(VT)[1] + " " + self.np()
        elif k < 0.72:
            s = self.c(VI)[1] + (" " + self.adv() if r.random() < 0.5 else "")
        elif k < 0.85 and self.verbs:
            s = (
                self.c(
                    [
                        "wanted to ",
                        "tried to ",
                        "decided to ",
                        "had to ",
                        "was going to ",
                        "refused to ",
                        "learned to ",
                        "hoped to ",
                    ]
                )
                + self.c(self.verbs)
                + " "
                + self.np()
            )
        else:
            s = (
                self.c(["seemed ", "became ", "looked ", "felt "])
                + self.c(["", "very ", "rather ", "quite ", "too "])
                + self.adj()
            )
        if r.random() < 0.4:
            s += " " + self.place()
        if r.random() < 0.25:
            s += " " + self.when()
        return s

    def clause(self):
        return self.subj() + " " + self.vp_past()

    def story(self):
        r = self.r
        k = r.random()
        if k < 0.35:
            return self.clause() + "."
        if k < 0.5:
            return (
                self.c(["when", "because", "although", "after", "before", "while", "since"])
                + " "
                + self.clause()
                + ", "
                + self.clause()
                + "."
            )
        if k < 0.65:
            return (
                self.clause()
                + self.c([", but ", ", and ", ", so ", " because ", " while ", " until ", ", although "])
                + self.clause()
                + "."
            )
        if k < 0.72:
            return self.when() + ", " + self.clause() + "."
        if k < 0.79:
            return (
                self.c(["there is ", "there was ", "once there was ", "I would like ", "we need ", "she has "])
                + self.np(True)
                + " "
                + self.place()
                + "."
            )
        if k < 0.86:
            return (
                self.np()
                + " "
                + self.c(["is", "was", "will be", "can be", "must be"])
                + " "
                + self.c(
                    [
                        "more " + self.adj() + " than " + self.np(),
                        "as " + self.adj() + " as " + self.np(),
                        self.adj() + " and " + self.adj(),
                        "very " + self.adj() + " " + self.place(),
                    ]
                )
                + "."
            )
        if k < 0.93:
            return (
                '"' * 0
                + self.c(
                    [
                        "I think that",
                        "everybody knows that",
                        "they say that",
                        "it is true that",
                        "the report says that",
                        "I heard that",
                    ]
                )
                + " "
                + self.clause()
                + "."
            )
        return (
            self.c(FIRST)
            + " "
            + self.c(["bought", "ate", "cooked", "brought", "ordered", "packed"])
            + " "
            + self.c(FOOD)
            + ", "
            + self.c(FOOD)
            + " and "
            + self.c(FOOD)
            + " "
            + self.c(
                ["for breakfast", "for lunch", "for dinner", "for the picnic", "at the market", "for the children"]
            )
            + "."
        )

    def greet(self):
        c = self.c
        f, g = c(FIRST), c(FIRST)
        return c(
            [
                lambda: (
                    f"{c(['Hello', 'Hi', 'Good morning', 'Good evening', 'Welcome', 'Dear friends', 'Hey'])}, {c(['my name is', 'this is', 'I am'])} {f}{c(['', ' ' + c(LAST)])}{c(['.', ', and it is nice to meet you.', ' from ' + c(CITY) + '.', ', your ' + c(JOB) + '.'])}"
                ),
                lambda: (
                    f"{c(['Hello', 'Hi', 'Hey', 'Good morning', 'Dear'])} {f}, {c(['how are you today?', 'how have you been?', 'did you sleep well?', 'welcome back.', 'it is good to see you again.', 'thank you for coming.', 'what can I do for you?'])}"
                ),
                lambda: (
                    f"Welcome to {c(CITY)}, {c(['the capital of ' + c(COUNTRY), 'where the local time is ' + self.time(), 'and thank you for travelling with us'])}."
                ),
                lambda: (
                    f"Thank you {c(['so much', 'very much', 'again', ''])} for {c(['your help', 'your letter', 'the flowers', 'calling', 'the invitation', 'your patience', 'listening', 'the ' + c(FOOD)])}, {f}.".replace(
                        "  ", " "
                    )
                ),
                lambda: (
                    f"{f}, {c(['please meet', 'this is', 'have you met', 'let me introduce'])} my {c(FAMILY)} {g}{c(['.', ' from ' + c(COUNTRY) + '.'])}"
                ),
                lambda: (
                    f"{c(['Goodbye', 'Good night', 'See you', 'Farewell'])}, {f}, {c(['and have a safe trip to ' + c(CITY), 'and sleep well', 'I will call you on ' + c(DAY), 'until we meet again', 'and thanks for everything'])}."
                ),
                lambda: (
                    f"My {c(FAMILY)} {c(['lives', 'works', 'was born', 'studied'])} in {c(CITY)}{c([', ' + c(COUNTRY), '', ' with ' + g])}."
                ),
                lambda: (
                    f"{c(['Mr', 'Mrs', 'Dr', 'Professor', 'Captain'])} {c(LAST)} {c(['is', 'was', 'will be'])} {c(['our new ' + c(JOB), 'waiting ' + self.place(), 'late today', 'on the phone', 'ready to see you now'])}.".replace(
                        "Mr ", "Mister "
                    )
                    .replace("Mrs ", "Missus ")
                    .replace("Dr ", "Doctor ")
                ),
                lambda: f"Happy {c(['birthday', 'new year', 'anniversary', 'holidays', 'Easter'])}, dear {f}!",
                lambda: (
                    f"This is {c(['a demonstration of', 'a short test of', 'an example of'])} {c(['speech synthesis', 'a small voice model', 'voice cloning', 'text to speech', 'my new voice'])}{c(['', ', spoken by ' + f, ' in English', ' running on a computer'])}."
                ),
            ]
        )()

    def number(self):
        c, r = self.c, self.r
        return c(
            [
                lambda: (
                    f"The {c(THING)} costs {num(r.randint(2, 400))} {c(['dollars', 'pounds', 'euros'])}{c(['', ' and ' + num(r.randint(5, 99)) + ' cents'])}."
                ),
                lambda: (
                    f"{c(['The meeting', 'The lesson', 'The film', 'The concert', 'The train', 'The flight to ' + c(CITY), 'Our appointment'])} {c(['starts at', 'ends at', 'begins at', 'is at', 'was moved to'])} {self.time()}{c(['', ' on ' + c(DAY), ' tomorrow'])}."
                ),
                lambda: f"{c(FIRST)} was born on the {ordinal(r.randint(1, 31))} of {c(MONTH)}, {year(r)}.",
                lambda: (
                    f"{num(r.randint(2, 99))} {c(['plus', 'minus', 'times', 'divided by'])} {num(r.randint(2, 99))} is {c(['', 'about ', 'more than ', 'equal to '])}{num(r.randint(2, 900))}."
                ),
                lambda: (
                    f"The phone number is {', '.join(' '.join(num(r.randint(0, 9)) for _ in range(3)) for _ in range(r.randint(2, 3)))}."
                ),
                lambda: f"There are {num(r.randint(2, 9999))} {plural(c(c([THING, ANIMAL, JOB])))} {self.place()}.",
                lambda: (
                    f"The {c(['road', 'bridge', 'river', 'tower', 'tunnel', 'wall', 'mountain'])} is {num(r.randint(2, 900))} {c(['metres', 'kilometres', 'miles', 'feet'])} {c(['long', 'high', 'away', 'from here'])}."
                ),
                lambda: f"In {year(r)}, {self.clause()}.",
                lambda: (
                    f"About {num(r.randint(2, 98))} percent of the {plural(c(JOB))} {c(['agree', 'disagree', 'came late', 'live in ' + c(CITY), 'drink ' + c(FOOD)])}."
                ),
                lambda: (
                    f"Please call {c(['room', 'extension', 'number', 'flight', 'platform', 'gate'])} {num(r.randint(1, 300))}."
                ),
                lambda: (
                    f"{c(['Chapter', 'Page', 'Question', 'Lesson', 'Part', 'Step', 'Section'])} {num(r.randint(1, 60))}: {c(['the ' + c(ADJ) + ' ' + c(THING), 'how to ' + c(VT)[0] + ' ' + article(c(THING)), 'a day in ' + c(CITY), 'the return of the ' + c(JOB)])}."
                ),
                lambda: (
                    f"It is {num(r.randint(1, 38))} degrees {c(['outside', 'in ' + c(CITY), 'in the shade', 'below zero'])} {c(['today', 'this morning', 'right now', ''])}.".replace(
                        " .", "."
                    )
                ),
                lambda: (
                    f"The {ordinal(r.randint(1, 60))} {c(['prize', 'floor', 'chapter', 'runner', 'attempt', 'question', 'visitor'])} {c(['was', 'is'])} {self.adj()}."
                ),
                lambda: (
                    f"{c(['We have', 'She counted', 'He found', 'They sold', 'I need', 'The shop ordered'])} {num(r.randint(11, 999))} {plural(c(THING))} and {num(r.randint(2, 99))} {plural(c(c([THING, ANIMAL])))}."
                ),
                lambda: (
                    f"The population of {c(CITY)} is {c(['about', 'almost', 'over', 'less than'])} {c([num(r.randint(1, 20)) + ' million', num(r.randint(100, 999) * 1000)])}."
                ),
            ]
        )()

    def question(self):
        c = self.c
        return c(
            [
                lambda: (
                    f"{c(['Could you', 'Can you', 'Would you', 'Will you'])} {c(['please ', ''])}{c(['tell me', 'show me', 'explain'])} {c(['where the nearest ' + c(PLACE) + ' is', 'how to ' + c(VT)[0] + ' ' + self.np(), 'what time it is', 'why ' + self.clause(), 'how much the ' + c(THING) + ' costs', 'the way to the ' + c(PLACE)])}?"
                ),
                lambda: f"{c(['Where', 'When', 'How', 'Why'])} did {self.subj()} {c(VT)[0]} {self.np()}?",
                lambda: (
                    f"{c(['Do', 'Did', 'Should', 'Can', 'Will'])} {c(['you', 'they', 'we', 'the ' + plural(c(JOB))])} {c(VT)[0]} {self.np()} {c([self.place(), self.when(), ''])}?".replace(
                        " ?", "?"
                    )
                ),
                lambda: (
                    f"Have you ever {c(['been to', 'lived in', 'heard of', 'travelled to'])} {c([c(CITY), c(COUNTRY)])}?"
                ),
                lambda: f"What {c(['is', 'was', 'happened to'])} {self.np(False)}?",
                lambda: f"Who {c(VT)[1]} {self.np()} {self.c([self.place(), self.when()])}?",
                lambda: f"Is {self.np(False)} {c(['really ', 'still ', 'always ', ''])}{self.adj()}?",
                lambda: (
                    f"Which {c(['do you prefer', 'is better', 'would you choose', 'is cheaper'])}, {c(FOOD)} or {c(FOOD)}?"
                ),
                lambda: (
                    f"How {c(['many ' + plural(c(THING)), 'much ' + c(['time', 'money', 'water', 'paper', 'sugar'])])} {c(['do you need', 'did you buy', 'can we carry', 'would be enough'])}?"
                ),
                lambda: (
                    f"Why {c(['are you', 'is he', 'is she', 'are they'])} so {self.adj()} {c(['today', 'this morning', 'all the time', ''])}?".replace(
                        " ?", "?"
                    )
                ),
                lambda: (
                    f"Would you like {c(['some ' + c(FOOD), 'a cup of tea', 'a glass of water', 'to play ' + c(SPORT), 'to visit ' + c(CITY), 'to sit down'])} {c(['with me', 'after work', 'tomorrow', 'this evening', ''])}?".replace(
                        " ?", "?"
                    )
                ),
                lambda: (
                    f"{c(['Are you coming', 'Shall we go', 'Is he driving', 'Did they walk'])} to the {c(PLACE)} {c(['tonight', 'tomorrow', 'on ' + c(DAY), 'by bus', 'with ' + c(FIRST)])}?"
                ),
                lambda: (
                    f"{self.clause()}, {c(['did not he', 'right', 'do you think', 'is that true', 'remember'])}?".replace(
                        "did not he", "didn't he"
                    )
                ),
            ]
        )()

    def news(self):
        c, r = self.c, self.r
        return c(
            [
                lambda: (
                    f"{c(['Officials', 'Scientists', 'Experts', 'Reporters', 'Farmers', 'Engineers', 'Doctors', 'Police'])} in {c([c(CITY), c(COUNTRY)])} {c(['said', 'announced', 'confirmed', 'warned', 'reported'])} {c([c(DAY), 'today', 'yesterday', 'this week', 'on ' + c(DAY)])} that {c(['the new ' + c(PLACE) + ' would open in ' + c(MONTH), 'prices had risen by ' + num(r.randint(2, 30)) + ' percent', 'the ' + c(['storm', 'flood', 'strike', 'fire', 'heat wave']) + ' was over', 'more than ' + num(r.randint(2, 900)) + ' ' + plural(c(JOB)) + ' were needed', self.clause()])}."
                ),
                lambda: (
                    f"The {c(['government', 'president', 'prime minister', 'mayor', 'city council', 'central bank', 'committee', 'company'])} of {c([c(COUNTRY), c(CITY)])} {c(['has', 'had'])} {c(['approved', 'rejected', 'announced', 'discussed', 'published', 'delayed'])} {c(['a plan', 'a report', 'a new law', 'a budget', 'an agreement', 'a proposal'])} {c(['on', 'about', 'concerning'])} {c(TOPIC)}."
                ),
                lambda: (
                    f"{c(CITY)} beat {c(CITY)} {num(r.randint(1, 9))} to {num(r.randint(0, 9))} in {c(['the final', 'a thrilling match', 'the ' + c(SPORT) + ' championship', 'the second round', 'the cup game'])}."
                ),
                lambda: (
                    f"And now the weather: {c(['sunny', 'cloudy', 'rainy', 'windy', 'stormy', 'snowy', 'foggy', 'warm', 'freezing'])} {c(['in the north', 'in the south', 'along the coast', 'in ' + c(CITY), 'over the mountains'])}, with temperatures {c(['around', 'above', 'below', 'up to'])} {num(r.randint(1, 35))} degrees."
                ),
                lambda: (
                    f"{c(['According to', 'In'])} a new {c(['study', 'survey', 'report', 'article'])}{c([' published ' + self.when(), ' from ' + c(CITY), ''])}, {c(['people who eat ' + c(FOOD) + ' sleep better', 'most ' + plural(c(JOB)) + ' enjoy ' + c(SPORT), 'half of all ' + plural(c(ANIMAL)) + ' live near water', 'interest in ' + c(TOPIC) + ' is growing', self.clause()])}."
                ),
                lambda: (
                    f"The {c(['price', 'value', 'export', 'import', 'quality', 'production'])} of {c(FOOD)} {c(['rose', 'fell', 'dropped', 'increased', 'doubled', 'remained steady'])} {c(['sharply', 'slightly', 'by ' + num(r.randint(2, 40)) + ' percent', 'for the ' + ordinal(r.randint(2, 12)) + ' month', ''])} {c(['in ' + c(COUNTRY), 'last year', 'this week'])}.".replace(
                        "  ", " "
                    )
                ),
                lambda: (
                    f"{c(FIRST)} {c(LAST)}, {article(c(JOB))} from {c(CITY)}, {c(['won', 'received', 'was given', 'accepted', 'lost'])} {c(['the first prize', 'an award', 'a medal', 'the election', 'a contract', 'the title'])} {self.when()}."
                ),
                lambda: (
                    f"The lecture {c(['on', 'about'])} {c(TOPIC)} will take place {c(['in', 'at'])} the {c(PLACE)} at {self.time()} on {c(DAY)}."
                ),
            ]
        )()

    def command(self):
        c, r = self.c, self.r
        return c(
            [
                lambda: (
                    f"{c(['Please ', '', 'Could everyone please ', 'First, ', 'Then '])}{c(VT)[0]} {self.np()} {c(['before you leave', 'when you can', self.place(), 'as soon as possible', 'for your ' + c(FAMILY), self.adv()])}."
                ),
                lambda: (
                    f"{c(['Turn', 'Please turn', 'Switch'])} {c(['on', 'off'])} the {c(['lights', 'radio', 'heating', 'television', 'alarm', 'oven', 'fan', 'music'])} in the {c(PLACE)}{c(['', ' at ' + self.time(), ' now'])}."
                ),
                lambda: (
                    f"{c(['Set', 'Please set'])} {c(['an alarm', 'a timer', 'a reminder'])} for {c([self.time(), num(r.randint(2, 90)) + ' minutes', c(DAY) + ' at ' + self.time()])}."
                ),
                lambda: (
                    f"{c(['Do not', 'Never', 'Do not ever', 'Always'])} {c(VT)[0]} {self.np()} {c(['without asking me', 'at night', 'in the rain', self.place(), 'too quickly'])}."
                ),
                lambda: (
                    f"{c(['Send', 'Read', 'Write', 'Show', 'Give'])} {c(FIRST)} {c(['a message', 'the letter', 'the report about ' + c(TOPIC), 'a picture of ' + self.np(True), 'my regards', 'the ' + c(THING)])}{c(['', ' tomorrow', ', please'])}."
                ),
                lambda: (
                    f"Turn {c(['left', 'right'])} at the {c(PLACE)}, then {c(['walk', 'drive', 'continue', 'go straight'])} for {num(r.randint(2, 900))} {c(['metres', 'yards', 'miles'])}."
                ),
                lambda: (
                    f"Mix the {c(FOOD)} with {c(['two cups of', 'a spoon of', 'some', 'a little'])} {c(FOOD)}, {c(['and bake it for', 'and cook it for', 'then wait'])} {num(r.randint(2, 60))} minutes."
                ),
                lambda: (
                    f"Let us {c(['talk about', 'learn about', 'read about', 'think about', 'discuss'])} {c(TOPIC)}{c(['', ' ' + c(['today', 'tomorrow', 'for a moment', 'after lunch'])])}."
                ),
                lambda: (
                    f"I {c(['really want to', 'would love to', 'have to', 'forgot to', 'used to', 'plan to', 'promised to'])} {c([c(VT)[0] + ' ' + self.np(), 'visit ' + c(CITY), 'play ' + c(SPORT), 'cook ' + c(FOOD), 'study ' + c(TOPIC)])} {c(['with ' + c(FIRST), self.when().replace('last', 'next').replace('yesterday', 'tomorrow') if False else 'some day', 'this year', 'with my ' + c(FAMILY)])}."
                ),
                lambda: (
                    f"{c(['If', 'Unless', 'When'])} {c(['you', 'they', 'we'])} {c(VT)[0]} {self.np()}, {c(['the', 'my', 'that'])} {self.noun()} {c(['will', 'might', 'could', 'should'])} {c(['break', 'work', 'stop', 'change', 'fall', 'disappear', 'grow', 'become ' + self.adj()])}."
                ),
            ]
        )()


def load_wordnet(folder, scowl):
    """nouns, adjectives, verbs, adverbs that are common, and usage examples"""
    common = set()
    for size in ("10", "20", "35"):
        for kind in ("english-words", "american-words"):
            p = os.path.join(scowl, f"{kind}.{size}")
            if os.path.exists(p):
                common.update(w.strip() for w in Path(p).read_text(encoding="latin-1").splitlines())
    cnt = Counter()
    tag = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
    for line in Path(folder, "cntlist.rev").read_text().splitlines():
        key, _, c = line.split()
        lemma, rest = key.split("%")
        cnt[(lemma, tag[rest[0]])] += int(c)
    pos = defaultdict(list)
    for (w, p), c in sorted(cnt.items()):
        if w.isalpha() and 3 <= len(w) <= 11 and w in common and c >= 2 and not BLOCK.search(w):
            tot = sum(cnt.get((w, q), 0) for q in "nvar")
            if c / tot > 0.7:
                pos[p].append(w)
    ex = []
    for name in ("noun", "verb", "adj", "adv"):
        for line in Path(folder, "data." + name).read_text(encoding="latin-1").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            ex += re.findall(r'"([^"]+)"', line.split("|", 1)[1])
    return pos, ex


def tidy(s, final="."):
    s = re.sub(r"\s+", " ", s).strip(" -;,`'")
    s = s[:1].upper() + s[1:]
    if s and s[-1] not in ".!?":
        s += final
    return re.sub(r"\bi\b", "I", s)


OK = re.compile(r"[A-Za-z' ,.!?:-]+")


def good(s):
    n = len(s.split())
    return (
        OK.fullmatch(s)
        and n <= 26
        and len(s) <= 165
        and not BLOCK.search(s)
        and not re.search(r"\b[A-Z]{2,}\b|\b(?!I\b|A\b|O\b)[A-Z]\.|--|\.\w", s)
    )


def state_docs(folder):
    out = []
    for name in ("us-declaration.gz", "us-constitution.gz"):
        p = os.path.join(folder, name)
        if os.path.exists(p):
            t = re.sub(r"\s+", " ", gzip.decompress(Path(p).read_bytes()).decode(errors="replace"))
            for s in re.split(r"(?<=[.;:])\s+", t):
                for q in [s] if len(s) < 160 else s.split(","):
                    q = tidy(q.strip(" ;:,-"))
                    if 4 <= len(q.split()) <= 25:
                        out.append(q)
    return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--count", type=int, default=20000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--out", default="sentences.jsonl")
    a.add_argument("--wordnet", default="/usr/share/wordnet")
    a.add_argument("--scowl", default="/usr/share/dict/scowl")
    a.add_argument("--state", default="/usr/share/state")
    a = a.parse_args()
    r = random.Random(a.seed)
    pos, ex = load_wordnet(a.wordnet, a.scowl)
    m = Maker(r, pos["n"], pos["a"], pos["v"], pos["r"])
    seen, out = set(), []

    def add(kind, s):
        k = re.sub(r"[^a-z]", "", s.lower())
        if s and k and k not in seen and good(s):
            seen.add(k)
            out.append({"kind": kind, "text": s})
            return True

    for s in SHORT:
        add("short", tidy(s))
    for s in TWIST:
        add("pangram", tidy(s))
    docs = state_docs(a.state)
    r.shuffle(docs)
    for s in docs[: max(60, a.count // 50)]:
        add("public-domain", s)
    r.shuffle(ex)
    left = int(a.count * 0.34)
    for s in ex:
        if left <= 0:
            break
        if 3 <= len(s.split()) <= 22 and not AVOID.search(s) and add("wordnet", tidy(s)):
            left -= 1
    kinds = [
        ("story", m.story, 30),
        ("greet", m.greet, 10),
        ("number", m.number, 14),
        ("question", m.question, 18),
        ("news", m.news, 14),
        ("command", m.command, 14),
    ]
    names, fns, w = zip(*kinds, strict=True)
    tries = 0
    while len(out) < a.count and tries < a.count * 20:
        tries += 1
        i = r.choices(range(len(kinds)), w)[0]
        add(names[i], tidy(fns[i]()))
    r.shuffle(out)
    with open(a.out, "w") as f:
        for k, o in enumerate(out):
            f.write(json.dumps({"id": k, **o}) + "\n")
    print(
        len(out), Counter(o["kind"] for o in out), len(pos["n"]), len(pos["v"]), len(pos["a"]), len(pos["r"]), len(ex)
    )


if __name__ == "__main__":
    main()
