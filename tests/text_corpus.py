"""In-house text for the text tests: RF captions from templates, and punctuation that provokes tokenizers.

The words come in inflected forms and with WordNet synonyms, so that METEOR's stem and synonym stages have work.
"""

from __future__ import annotations

import random

_MODULATIONS = ("BPSK", "QPSK", "16-QAM", "64-QAM", "OFDM", "LoRa", "FM", "AM", "GFSK", "chirp", "DSSS", "pulse")
_NOUNS = (
    *("signal", "signals", "burst", "bursts", "carrier", "carriers", "emission", "emissions", "transmission"),
    *("transmissions", "waveform", "beacon", "pulse", "pulses", "tone", "call", "message"),
)
_QUALITIES = (
    *("strong", "powerful", "weak", "faint", "wide", "broad", "narrow", "quick", "fast", "rapid", "slow", "loud"),
    *("noisy", "clear", "new", "old", "stable", "steady", "large", "big", "small", "little"),
)
_VERBS = (
    *("begins", "starts", "ends", "stops", "finishes", "appears", "fades", "drifts", "moves", "hops", "jumps"),
    *("overlaps", "interferes", "repeats", "continues", "grows", "shifted", "moving", "jumping", "repeated"),
)
_SYNONYMS = {
    **{"begins": "starts", "starts": "begins", "ends": "stops", "quick": "fast", "fast": "quick", "rapid": "fast"},
    **{"big": "large", "large": "big", "small": "little", "wide": "broad", "broad": "wide", "weak": "faint"},
    **{
        "error": "mistake",
        "aerial": "antenna",
        "antenna": "aerial",
        "signal": "sign",
        "call": "phone",
        "jumps": "leaps",
    },
}
_PLACES = (
    *("near the band centre", "at 2.4 GHz", "at 868.3 MHz", "in the lower band", "around 5,180 MHz"),
    *("close to the band edge", "in the 28 GHz band", "beside the drone", "over the aerial", "by the antenna"),
)
_LEVELS = (
    *("at high SNR", "at -3.5 dB SNR", "with low noise", "buried in noise", "at an SNR of 12 dB", "(SNR < 0 dB)"),
    *("with little interference", "with a large error", "above the noise floor"),
)
_DIRECTIONS = (
    *("arriving from the north", "from azimuth 45 degrees", "coming from -30 deg", "with two paths"),
    *("with multipath fading", "from the left, slowly moving", "toward the receiver", "to the receivers", ""),
)


def rf_caption(rng: random.Random) -> str:
    """One caption of 4 to 25 words."""
    pick = rng.choice
    article = pick(("a", "one", "two overlapping", "the", "an intermittent", "some"))
    subject = f"{article} {pick(_QUALITIES)} {pick(_MODULATIONS)} {pick(_NOUNS)}"
    shape = pick(
        (
            f"{subject} {pick(_PLACES)} {pick(_LEVELS)} {pick(_DIRECTIONS)}",
            f"{pick(_LEVELS)}, {subject} {pick(_VERBS)} {pick(_PLACES)}.",
            f"{subject} {pick(_VERBS)} and {pick(_VERBS)}; {pick(_QUALITIES)} {pick(_NOUNS)} {pick(_PLACES)}",
            f"{pick(_MODULATIONS)} {pick(_NOUNS)} {pick(_DIRECTIONS)} {pick(_PLACES)}",
            f"{article} {pick(_NOUNS)} {pick(_VERBS)}",
        )
    )
    return " ".join(shape.split())


def rf_corpus(n: int, refs: tuple[int, int] = (1, 5), seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """n captions, each with a number of references in ``refs``, one of them now and then the caption, reworded."""
    rng = random.Random(seed)
    captions = [rf_caption(rng) for _ in range(n)]
    references = []
    for caption in captions:
        group = [rf_caption(rng) for _ in range(rng.randint(*refs))]
        if rng.random() < 0.7:
            words = [_SYNONYMS.get(word, word) if rng.random() < 0.5 else word for word in caption.split()]
            for _ in range(rng.randint(0, 3)):
                words[rng.randrange(len(words))] = rng.choice(_QUALITIES + _NOUNS + _VERBS)
            if rng.random() < 0.3:
                rng.shuffle(words)
            group[rng.randrange(len(group))] = " ".join(words)
        references.append(group)
    return captions, references


_PIECES = (
    *("3.5", "-3.5", ".5", "5.", "1,024", "10,", ",10", "2-3", "-", "--", "a-b", "x-", "it's", "'quoted'", '"q"'),
    *("&quot;", "&amp;", "&lt;b&gt;", "&amp;lt;", "&QUOT;", "&", "<skipped>", "<skipped>x", "e.g.", "U.S.A.", "..."),
    *(
        "..5",
        "a..b",
        "5..6",
        "a,b",
        "a, b",
        "(x)",
        "[x]{y}",
        "50%",
        "$5",
        "m/s",
        "a_b",
        "^",
        "~",
        "`",
        "#1",
        "@x",
        "\\",
    ),
    *("déjà", "Ωhm", "ΑΣ", "μs", "–", "5–6", "28 GHz。", "“smart”", "日本", "\u00a0", "\u2028", "İ", "ß", "\t", "\r"),
    *("2.4.", "v1.2.3", "10:30", "a.5", "5.a", "a-5", "5-a", "-5", "5-", "!?", "1.,2", ",.", ".,", "+5", "<5", "*"),
)


def punctuation_lines(n: int, seed: int = 0, line_ends: bool = False) -> list[str]:
    """n lines of marks, numbers, entities and non-ASCII text, glued or spaced at random, some with line ends inside."""
    rng = random.Random(seed)
    gaps = ("", " ", " ", "  ", "\n", "-\n") if line_ends else ("", " ", " ", "  ")
    return [
        "".join(rng.choice(_PIECES) + rng.choice(gaps) for _ in range(rng.randint(0, 9))).rstrip("\r") for _ in range(n)
    ]
