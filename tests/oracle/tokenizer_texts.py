"""Texts for comparing tokenizers: many scripts, code, logs, adversarial and random strings."""

import pathlib
import random
import sys

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it's 12:45, and we've 3,141 foxes — don't panic!",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку. Ещё 42 лисы.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول، ١٢٣ مرّة.",
    "השועל החום המהיר קופץ מעל הכלב העצלן, שָׁלוֹם עֲלֵיכֶם.",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। क्षत्रिय १२३",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ กำ น้ำ ๑๒๓",
    "敏捷的棕色狐狸跳过了懒狗。２０２４年，价格￥１００！",
    "素早い茶色の狐がのろまな犬を飛び越える。ｶﾞｷﾞｸﾞ ㌔ ﾊﾟ",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 한글 ᄒᆞᆫ글",
    "Ο γρήγορος καφέ αλεπού. Ἀρχιμήδης Σίσυφος ΣΑΣ ς",
    "Đặc biệt là tiếng Việt: Nguyễn Ái Quốc, phở bò. Co\u0302\u0323ng",
    "Straße GROẞ İstanbul ıŞĞ ﬁnance ﬆ ﬃ ǅ ŉ ſ 'ſ It'S WE'LL x'Re",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪🇯 👍🏽 ❤️ ☕︎ ©‍® 1️⃣ ✨✨✨",
    "ⅣⅫ ½ ⅔ ²³¹ ①②③ ⁴₅ ㈱ ℡ ™ ℵ Å K Ω µ ﷺ",
    "e\u0301a\u030a\u0323o\u0308\u0304 \u0301\u0302 a\u0315\u0300\u05ae\u0062 q\u0307\u0323",
    "zero\u200bwidth\u200djoin\ufeffbom\u00adsoft\u2060 nb\u00a0sp\u3000ideo\u2003em\u2028line\u2029para",
    "x" * 60 + " " + "ab" * 40 + " " + "z9" * 30,
    "    indented\t\ttabs \r\r carriage   trailing   ",
    "<s> </s> [CLS] [SEP] [MASK] <unk> <|endoftext|> <pad>",
    "▁▁meta▁space ▁ ▁▁▁ Ġbyte Ċ level",
    "it's I'm you're they've he'd we'll 'S 'T 'RE 'VE 'M 'LL 'D '",
    "$1,234.56 10% a+b=c (x*y)^2 #tag @user http://example.invalid/a?b=c&d=e#f C:\\dir\\file.txt",
    "aAbBcC camelCase HTTPServer XMLHttpRequest iPhone ÉCOLEécole ΑΒΓαβγ ꟲABc",
    "\u0000nul\u0001\u0008\u000b\u000c\u000e\u001f\u007f\u0080\u0085\u009f control \ufffd \ufffe",
    "नमस्ते\u200d क\u094dष త్రి ക്ഷ \u0d4ea \u0600\u06e1",
    "“quotes” ‘single’ «guillemets» … — – ‐ ・ 、。「」【】",
    "",
    " ",
    "  ",
    "a",
    "\u0301",
]

# First code points of blocks, in all planes.
BLOCKS = [
    0x20, 0x80, 0x100, 0x180, 0x250, 0x2B0, 0x300, 0x370, 0x400, 0x500, 0x530, 0x590, 0x600, 0x700,
    0x780, 0x7C0, 0x800, 0x840, 0x8A0, 0x900, 0x980, 0xA00, 0xA80, 0xB00, 0xB80, 0xC00, 0xC80,
    0xD00, 0xD80, 0xE00, 0xE80, 0xF00, 0x1000, 0x10A0, 0x1100, 0x1200, 0x13A0, 0x1400, 0x1680,
    0x16A0, 0x1700, 0x1780, 0x1800, 0x18B0, 0x1900, 0x1950, 0x1A00, 0x1AB0, 0x1B00, 0x1B80, 0x1C00,
    0x1C80, 0x1CD0, 0x1D00, 0x1DC0, 0x1E00, 0x1F00, 0x2000, 0x2070, 0x20A0, 0x20D0, 0x2100, 0x2150,
    0x2190, 0x2200, 0x2300, 0x2400, 0x2460, 0x2500, 0x2580, 0x2600, 0x2700, 0x2800, 0x2900, 0x2A00,
    0x2B00, 0x2C00, 0x2C80, 0x2D00, 0x2DE0, 0x2E00, 0x2E80, 0x2F00, 0x3000, 0x3040, 0x30A0, 0x3100,
    0x3130, 0x3190, 0x3200, 0x3300, 0x3400, 0x4DC0, 0x4E00, 0x9F00, 0xA000, 0xA490, 0xA4D0, 0xA500,
    0xA640, 0xA6A0, 0xA700, 0xA720, 0xA800, 0xA840, 0xA880, 0xA900, 0xA960, 0xA9E0, 0xAA00, 0xAA80,
    0xAB00, 0xAB30, 0xABC0, 0xAC00, 0xD7B0, 0xE000, 0xF900, 0xFB00, 0xFB50, 0xFE00, 0xFE20, 0xFE50,
    0xFE70, 0xFF00, 0xFFF0, 0x10000, 0x10100, 0x10280, 0x10300, 0x10400, 0x10500, 0x10800, 0x10900,
    0x10A00, 0x10B00, 0x10C00, 0x10D00, 0x10E80, 0x10F00, 0x11000, 0x11100, 0x11200, 0x11300,
    0x11400, 0x11580, 0x11600, 0x11700, 0x11800, 0x11900, 0x11A00, 0x11B00, 0x11C00, 0x11D00,
    0x11EE0, 0x11F00, 0x12000, 0x13000, 0x13430, 0x14400, 0x16100, 0x16800, 0x16A40, 0x16B00,
    0x16D40, 0x16E40, 0x16F00, 0x17000, 0x18800, 0x18B00, 0x1AFF0, 0x1B000, 0x1BC00, 0x1CC00,
    0x1CF00, 0x1D000, 0x1D100, 0x1D200, 0x1D400, 0x1D800, 0x1DF00, 0x1E000, 0x1E100, 0x1E2C0,
    0x1E4D0, 0x1E5D0, 0x1E7E0, 0x1E800, 0x1E900, 0x1EC70, 0x1EE00, 0x1F000, 0x1F100, 0x1F200,
    0x1F300, 0x1F600, 0x1F680, 0x1F780, 0x1F900, 0x1FA70, 0x1FB00, 0x20000, 0x2A6D0, 0x2B740,
    0x2CEB0, 0x2EBF0, 0x2F800, 0x30000, 0x31350, 0xE0000, 0xE0100, 0xF0000, 0x100000,
]
SPICES = list("  \t'.,-_!?0127aeiouzAEZ\u0301\u0308\u200d\ufe0f\u00a0▁<>[]#/\"") + ["'s", "'LL", "  "]


def random_point(rng):
    point = rng.choice(BLOCKS) + rng.randrange(128)
    return chr(point) if not 0xD800 <= point < 0xE000 and point != 10 else "x"


def random_string(rng, longest=40):
    """Characters of a few blocks, words of sentences, and what pipelines treat in its own way."""
    parts = []
    for _ in range(rng.randrange(1, longest)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(random_point(rng))
        elif kind < 0.7:
            parts.append(rng.choice(SPICES))
        elif kind < 0.85:
            words = rng.choice(SENTENCES[:26]).split(" ")
            parts.append(rng.choice(words) + rng.choice(["", " "]))
        else:
            point = rng.randrange(0x110000)
            parts.append(chr(point) if not 0xD800 <= point < 0xE000 and point != 10 else " ")
    return "".join(parts).replace("\n", " ")


def random_bytes(rng, longest=40):
    lead = [0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0x80, 0xBF, 0xC0]
    raw = bytes(
        rng.choice(lead) if rng.random() < 0.3 else rng.randrange(256)
        for _ in range(rng.randrange(1, longest))
    )
    return raw.replace(b"\n", b" ")


def lines(seed, count):
    """Lines of text, as bytes; one in ten is not UTF-8."""
    rng = random.Random(seed)
    result = [s.encode() for s in SENTENCES if "\n" not in s]
    while len(result) < count:
        if rng.random() < 0.1:
            result.append(random_bytes(rng))
        else:
            result.append(random_string(rng).encode())
    return result


def source_code(limit):
    """Python's own library."""
    folder = pathlib.Path(sys.modules["os"].__file__).parent
    text = []
    size = 0
    for path in sorted(folder.glob("*.py")):
        text.append(path.read_text(errors="replace"))
        size += len(text[-1])
        if size >= limit:
            break
    return "".join(text)[:limit]


def log_lines(rng, count):
    level = ["INFO", "WARN", "ERROR", "DEBUG"]
    return "".join(
        f"2024-0{rng.randrange(1, 10)}-1{rng.randrange(10)}T0{rng.randrange(10)}:{rng.randrange(60):02}"
        f":{rng.randrange(60):02}.{rng.randrange(1000):03}Z [{rng.choice(level)}] worker-{rng.randrange(64)}"
        f" 0x{rng.randrange(1 << 48):012x} GET /api/v{rng.randrange(4)}/items/{rng.randrange(10**6)}?q="
        f"{'%20'.join('abcdef'[: rng.randrange(1, 6)] for _ in range(3))} {rng.randrange(600)}ms\r\n"
        for _ in range(count)
    )


def mixed_scripts(rng, limit):
    parts = []
    size = 0
    while size < limit:
        parts.append(rng.choice(SENTENCES[:26]))
        size += len(parts[-1]) + 1
    return "\n".join(parts)


def documents(seed, megabytes):
    """Whole texts with newlines: code, logs, mixed scripts, megabytes of one character."""
    rng = random.Random(seed)
    size = int(megabytes * 1_000_000 / 6)
    return {
        "code": source_code(size),
        "logs": log_lines(rng, size // 110),
        "mixed": mixed_scripts(rng, size),
        "random": "\n".join(random_string(rng) for _ in range(size // 60)),
        "spaces": "a" + " " * size + "b" + "\n" * (size // 20) + " \n" * (size // 50) + "c",
        "letter": "a" * size,
    }
