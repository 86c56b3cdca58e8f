"""``python -m bench.text``: captions and answers against their peers, strings in, numbers out.

Each line: milliseconds of ours and of a peer (the best turn), how many times as long the peer takes (the median over
rounds of the ratio of turns of the same round), our first call with nothing compiled, and how far the values lie apart.
A peer that is not installed is named as absent. nltk scores METEOR with its own WordNet reader where the files of
Debian's package wordnet-base are there, else without synonyms, and so do we then.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bench import report
from bench.timing import Contestant, cold_call, race, ratio
from emma_jax.metrics.text import CIDER, F1, Bleu, ExactMatch, Meteor
from emma_jax.text.build_synonyms import DEBIAN, nltk_data_folder
from emma_jax.text.meteor import STAGES
from emma_jax.text.tokenizers import get_tokenizer, tokenize

__all__ = ["corpus", "main"]

Texts = list[str]
Groups = list[list[str]]

_SLOTS = (
    ("a", "one", "two overlapping", "the", "an intermittent", "some"),
    ("strong", "powerful", "weak", "faint", "wide", "broad", "narrow", "fast", "quick", "steady", "noisy", "small"),
    ("BPSK", "QPSK", "16-QAM", "64-QAM", "OFDM", "LoRa", "FM", "AM", "GFSK", "chirp", "DSSS", "pulse"),
    ("signal", "signals", "burst", "bursts", "carrier", "emission", "transmission", "waveform", "beacon", "tones"),
    ("near the band centre", "at 2.4 GHz", "at 868.3 MHz", "in the lower band", "around 5,180 MHz", "by the antenna"),
    ("at high SNR", "at -3.5 dB SNR", "with low noise", "buried in noise", "at an SNR of 12 dB", "(SNR < 0 dB)"),
    ("from the north", "from azimuth 45 degrees", "coming from -30 deg", "with two paths", "slowly moving left", ""),
)


def corpus(captions: int, references: int, seed: int = 0) -> tuple[Texts, Groups]:
    """Captions of about 13 words from templates, and as many references for each, one a variation of the caption."""
    rng = random.Random(seed)

    def words() -> list[str]:
        return [rng.choice(slot) for slot in _SLOTS]

    chosen = [words() for _ in range(captions)]
    groups = []
    for caption in chosen:
        near = [rng.choice(slot) if rng.random() < 0.3 else word for word, slot in zip(caption, _SLOTS)]
        groups.append([" ".join(w).strip() for w in (near, *(words() for _ in range(references - 1)))])
    return [" ".join(w).strip() for w in chosen], groups


# --- peers: texts and references in the form the library wants, made before the clock starts ----------------------


def _coco(texts: Texts, groups: Groups) -> Callable[[], float]:
    scorer = importlib.import_module("pycocoevalcap.cider.cider").Cider()
    references, candidates = dict(enumerate(groups)), {i: [t] for i, t in enumerate(texts)}
    return lambda: float(scorer.compute_score(references, candidates)[0])


def _torch_bleu(texts: Texts, groups: Groups) -> Callable[[], float]:
    bleu = importlib.import_module("torchmetrics.functional.text").bleu_score
    # Of references equally close in length it takes the first, the definition the shorter: shorter ones go first.
    ordered = [sorted(group, key=lambda r: len(r.split())) for group in groups]
    return lambda: float(bleu(texts, ordered))


def _sacrebleu(texts: Texts, groups: Groups) -> Callable[[], float]:
    bleu = importlib.import_module("sacrebleu.metrics").BLEU(lowercase=True, force=True, smooth_method="none")
    columns = [list(column) for column in zip(*groups)]

    def call() -> float:
        # Its tokenizer remembers lines from call to call; a corpus is scored once.
        bleu.tokenizer.__class__.__call__.cache_clear()
        return float(bleu.corpus_score(texts, columns).score) / 100

    return call


def _torch_squad(which: str, texts: Texts, groups: Groups) -> Callable[[], float]:
    squad = importlib.import_module("torchmetrics.functional.text.squad").squad
    preds = [{"prediction_text": t, "id": str(i)} for i, t in enumerate(texts)]
    target = [{"answers": {"answer_start": [0] * len(g), "text": g}, "id": str(i)} for i, g in enumerate(groups)]
    return lambda: float(squad(preds, target)[which]) / 100


class _NoWordNet:
    def synsets(self, word: str) -> list[Any]:
        return []


def _nltk_meteor(texts: Texts, groups: Groups) -> Callable[[], float]:
    score = importlib.import_module("nltk.translate.meteor_score").meteor_score
    wordnet = _nltk_wordnet() if DEBIAN.is_dir() else _NoWordNet()
    split = get_tokenizer("13a")
    words, references = tokenize(texts, split), [tokenize(g, split) for g in groups]
    return lambda: sum(score(r, w, wordnet=wordnet) for r, w in zip(references, words)) / len(words)


def _nltk_wordnet() -> Any:
    import nltk

    folder = tempfile.mkdtemp(prefix="bench-wordnet-")
    place = nltk_data_folder(DEBIAN, Path(folder))
    nltk.data.path.insert(0, folder)
    reader = importlib.import_module("nltk.corpus.reader.wordnet").WordNetCorpusReader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no multilingual functions
        return reader(nltk.data.FileSystemPathPointer(str(place)), None)


@dataclass(frozen=True)
class _Row:
    name: str
    metric: Callable[..., float]
    peers: tuple[tuple[str, Callable[[Texts, Groups], Callable[[], float]], float], ...]


def _rows() -> list[_Row]:
    stages = STAGES if DEBIAN.is_dir() else STAGES[:2]
    return [
        _Row("cider", CIDER("whitespace"), (("pycocoevalcap", _coco, 1e-9),)),
        _Row("bleu", Bleu("whitespace"), (("torchmetrics", _torch_bleu, 1e-5),)),
        _Row("bleu-13a", Bleu(), (("sacrebleu", _sacrebleu, 1e-9),)),
        _Row("meteor", Meteor(stages=stages), (("nltk", _nltk_meteor, 1e-9),)),
        _Row("exact-match", ExactMatch(), (("torchmetrics", partial(_torch_squad, "exact_match"), 1e-5),)),
        _Row("f1", F1(), (("torchmetrics", partial(_torch_squad, "f1"), 1e-5),)),
    ]


def _measure(row: _Row, texts: Texts, groups: Groups, repeats: int, budget_s: float) -> list[dict[str, Any]]:
    ours = Contestant(lambda: row.metric(texts, groups))
    cold, value = cold_call(ours.call, clear=True)
    peers: dict[str, tuple[Contestant, float, float]] = {}
    lines: list[dict[str, Any]] = []
    for name, make, tolerance in row.peers:
        try:
            call = make(texts, groups)
        except ImportError as e:
            lines.append({"row": row.name, "peer": name, "absent": str(e)})
            continue
        peers[name] = (Contestant(call), call(), tolerance)
    ours.call()
    race([ours, *(p for p, _, _ in peers.values())], repeats, budget_s)
    for name, (peer, answer, tolerance) in peers.items():
        lines.append(
            {
                "row": row.name,
                "peer": name,
                "ours_ms": 1e3 * ours.best,
                "peer_ms": 1e3 * peer.best,
                "ratio": ratio(peer, ours),
                "cold_ms": 1e3 * cold,
                "value": value,
                "difference": abs(value - answer),
                "agrees": abs(value - answer) <= tolerance,
            }
        )
    return lines


def _text(line: dict[str, Any]) -> str:
    if "absent" in line:
        return f"{line['row']:<12} {line['peer']:<14} absent: {line['absent']}"
    note = "" if line["agrees"] else "  DISAGREES"
    return (
        f"{line['row']:<12} {line['peer']:<14} {line['ours_ms']:>9.1f} {line['peer_ms']:>10.1f} {line['ratio']:>7.1f}x"
        f" {line['cold_ms']:>9.1f}  {line['value']:.9f} {line['difference']:>8.1e}{note}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns 1 if a peer disagreed."""
    parser = argparse.ArgumentParser(prog="python -m bench.text", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=10_000, help="captions (default 10000)")
    parser.add_argument("--references", type=int, default=5, help="references each (default 5)")
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds after which a slow peer sits out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    args = parser.parse_args(argv)
    wanted = [w for w in args.only.split(",") if w]
    rows = [r for r in _rows() if not wanted or r.name in wanted]
    if not rows or set(wanted) - {r.name for r in rows}:
        parser.error(f"rows are {', '.join(r.name for r in _rows())}")
    jax.config.update("jax_enable_compilation_cache", False)
    machine = report.machine()
    texts, groups = corpus(args.n, args.references)
    print(report.machine_line(machine))
    print(f"{args.n:,} captions x {args.references} references, strings in, numbers out\n")
    columns = f"{'row':<12} {'peer':<14} {'ours ms':>9} {'peer ms':>10} {'ratio':>8} {'cold ms':>9}"
    print(f"{columns}  value       differs by")
    lines: list[dict[str, Any]] = []
    for row in rows:
        found = _measure(row, texts, groups, args.repeats, args.budget)
        print(*map(_text, found), sep="\n", flush=True)
        lines += found
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": machine, "lines": lines}, indent=1), encoding="utf-8")
    return int(any(not line.get("agrees", True) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
