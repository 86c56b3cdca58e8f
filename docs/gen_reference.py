"""The generated pages of the documentation: metric, task and API reference, written from docstrings and the registry.

Nothing on these pages is typed by hand but the two tables below: edge cases, which are computed while the page is
written (and compared with what a reader should expect by tests/test_docs.py), and the tests that hold each metric.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import emma_jax as emma
from emma_jax import adapters, emval, metrics, report, training
from emma_jax.metrics import Metric
from emma_jax.tasks import Task, list_tasks

__all__ = [
    "EDGES",
    "HELD_BY",
    "METRICS",
    "api_page",
    "docstring_markdown",
    "metric_page",
    "pages",
    "run_edge",
    "tasks_page",
]

METRICS: tuple[type[Metric], ...] = tuple(getattr(metrics, name) for name in metrics.__all__ if name != "Metric")

# Metric -> (expression over `emma.metrics`, expected value or error, what it shows).
EDGES: dict[str, tuple[tuple[str, Any, str], ...]] = {
    "MeanAngularError": (
        ("MeanAngularError()([359.0], [1.0])", 2.0, "the short way round"),
        ("MeanAngularError()([725.0], [-10.0])", 15.0, "any finite angle is legal"),
        ("MeanAngularError(period=180)([179.0], [1.0])", 2.0, "axial data"),
        ("MeanAngularError()([nan], [1.0])", "NonFiniteError", "named with its index"),
    ),
    "BalancedAccuracy": (
        ("BalancedAccuracy()([0, 2, 1, 1], [0, 0, 1, 1])", 0.5, "class 2 is predicted and never true: recall 0"),
        ('BalancedAccuracy(absent="exclude")([0, 2, 1, 1], [0, 0, 1, 1])', 0.75, "or it is left out"),
        ("BalancedAccuracy()([0, 1], [0, -1])", "LabelError", "a label that is no class"),
    ),
    "PlainAccuracy": (("PlainAccuracy()([0, 1, 1, 2], [0, 1, 2, 2])", 0.75, "predicted classes count as they are"),),
    "Top1Accuracy": (
        ("Top1Accuracy()([[0.5, 0.5], [0.5, 0.5]], [0, 1])", 0.5, "on a tie the lowest index wins"),
        ("Top1Accuracy()([[-inf, 0.0], [1.0, inf]], [1, 1])", 1.0, "infinities are ordinary scores"),
    ),
    "TopKAccuracy": (
        ("TopKAccuracy(k=2)([[0.1, 0.2, 0.3]], [1])", 1.0, "rank 1 is among the first two"),
        ("TopKAccuracy(k=4)([[0.1, 0.2, 0.3]], [1])", "EvaluationError", "k above the number of classes"),
        ('TopKAccuracy(k=1, input="ranked", index_base=1)([[3, 1]], [3])', 1.0, "ranked beams, counted from one"),
    ),
    "AUC": (
        ("AUC()([0.5, 0.5, 0.5], [0, 1, 1])", 0.5, "all tied"),
        ("AUC()([98.0, 97.25, 99.5, 98.75, 99.0, 97.5], [0, 0, 1, 1, 0, 1])", 6 / 9, "raw logits: no sigmoid"),
        ("AUC()([0.1, 0.2], [1, 1])", "DegenerateLabelsError", "one class only"),
    ),
    "AUROC": (
        ("AUROC()([inf, 1.0, -inf, 0.0], [1, 0, 0, 1])", 0.75, "infinities are ordinary scores"),
        ("AUROC()([[0.1, 0.9]], [1])", "ShapeError", "strictly binary"),
    ),
    "EER": (
        ("EER()([0.9, 0.7, 0.4, 0.8, 0.5, 0.3, 0.2, 0.1], [1, 1, 1, 0, 0, 0, 0, 0])", 1 / 3, "between two thresholds"),
        ("EER()([0.5, 0.5], [0, 1])", 0.5, "a constant score"),
        ("EER()([1.0, 2.0], [1, 1])", "DegenerateLabelsError", "no impostor trial"),
    ),
    "TPRatFPR": (
        ("TPRatFPR(fpr=0.5)([3.0, 2.0, 1.0, 0.0], [1, 0, 1, 0])", 1.0, "the upper end of a vertical segment"),
        ("TPRatFPR(fpr=0.25)([1.0, 1.0], [1, 0])", 0.25, "all tied: the diagonal"),
    ),
    "NMSE": (
        ("NMSE()([[2.0, 0.0]], [[1.0, 0.0]])", 0.0, "an error as strong as the channel"),
        ("NMSE()([[1.0, 1.0]], [[1.0, 1.0]])", float("-inf"), "perfect"),
        ("NMSE()([[1.0, 1.0]], [[0.0, 0.0]])", "DegenerateLabelsError", "no channel has energy"),
    ),
    "SGCS": (
        ("SGCS()([[3.0j, 0j]], [[1.0 + 0j, 0j]])", 1.0, "a complex factor changes nothing"),
        ("SGCS()([[0j, 0j]], [[1.0 + 0j, 0j]])", 0.0, "a zero vector is a miss"),
    ),
    "SISDR": (
        ("SISDR()(3 * s, s)", 100.0, "perfect up to scale: the clamp"),
        ("SISDR()(0 * s, s)", -100.0, "silence is no estimate"),
        ("SISDR()(s, 0 * s)", "DegenerateLabelsError", "every reference is silent"),
        ("SISDR()(s[:, :4], s[:, :4])", "ShapeError", "so short an axis is no time axis"),
    ),
    "DBAScore": (
        ('DBAScore(input="ranked", index_base=0, k=1)([[4]], [5])', 0.8, "one beam off, out of delta = 5"),
        ('DBAScore(input="ranked", index_base=0, k=1)([[5]], [5])', 1.0, "the right beam"),
    ),
    "BeamPowerLoss": (
        ("BeamPowerLoss()([[0.0, 1.0]], [[10.0, 1.0]])", 10.0, "a tenth of the power"),
        ("BeamPowerLoss()([[0.0, 1.0]], [[1.0, 0.0]])", float("inf"), "a beam without gain"),
    ),
    "RSRPAccuracy": (("RSRPAccuracy()([[0.0, 1.0]], [[1.2, 1.0]])", 1.0, "0.8 dB are within the margin of 1"),),
    "Bleu": (
        ('Bleu()(["a b c d"], [["a b c d"]])', 1.0, "identical"),
        ('Bleu()(["a b c"], [["a b c d"]])', 0.0, "no 4-gram: no smoothing"),
        ('Bleu()(["a"], [[]])', "EmptyEvaluationError", "a caption without a reference"),
    ),
    "Meteor": (('Meteor()(["one two three"], [["one two three"]])', 1 - 0.5 / 27, "identical, and not 1"),),
    "CIDER": (('CIDER()(["a b c d"], [["a b c d"]])', 0.0, "one document: every idf is 0"),),
    "ExactMatch": (
        ('ExactMatch()(["The Drone."], ["drone"])', 1.0, "case, article and punctuation do not count"),
        ('ExactMatch()([""], [[]])', 1.0, "no gold answer: no answer is right"),
    ),
    "F1": (
        ('F1()(["red drone"], ["the drone"])', 2 / 3, "one of two tokens, against one"),
        ('F1()(["the"], ["drone"])', 0.0, "nothing is left after normalization"),
    ),
    "RelL2": (
        ("RelL2()(2 * z, z)", 1.0, "twice the field"),
        ("RelL2()(z, 0 * z)", "DegenerateLabelsError", "no field"),
    ),
    "LocalQ50": (("LocalQ50()(1j * z, z)", 2**0.5, "a quarter turn of phase"),),
    "LocalCosQ50": (("LocalCosQ50()(-3 * z, z)", -1.0, "the opposite direction, whatever the size"),),
    "RealImagRMSE": (("RealImagRMSE()([1 + 1j], [0j])", 1.0, "the mean is over real and imaginary parts"),),
    "MagWMAE": (("MagWMAE()([0.1 + 0j], [1 + 0j])", 20.0, "a factor of ten"),),
    "PhaseWMAE": (
        ("PhaseWMAE()([-1 + 0j], [1 + 0j])", float(np.pi), "half a turn"),
        ("PhaseWMAE()([1j], [0j])", 0.0, "an exact zero has no phase"),
    ),
}

# Metric -> (what its values are held to, the test file that does it).
HELD_BY: dict[str, tuple[tuple[str, str], ...]] = {
    "MeanAngularError": (("exact rationals", "tests/validation/metrics/test_mean_angular_error.py"),),
    "BalancedAccuracy": (
        ("torchmetrics MulticlassAccuracy(macro)", "tests/parity/test_torchmetrics.py"),
        ("scikit-learn balanced_accuracy_score", "tests/parity/test_sklearn.py"),
    ),
    "PlainAccuracy": (
        ("torchmetrics MulticlassAccuracy(micro)", "tests/parity/test_torchmetrics.py"),
        ("scikit-learn accuracy_score", "tests/parity/test_sklearn.py"),
    ),
    "Top1Accuracy": (
        ("torchmetrics MulticlassAccuracy(micro)", "tests/parity/test_torchmetrics.py"),
        ("the definition in integers", "tests/validation/metrics/test_accuracy.py"),
    ),
    "TopKAccuracy": (
        ("torchmetrics MulticlassAccuracy(top_k)", "tests/parity/test_torchmetrics.py"),
        ("scikit-learn top_k_accuracy_score", "tests/parity/test_sklearn.py"),
    ),
    "AUC": (
        ("scikit-learn roc_auc_score", "tests/parity/test_sklearn.py"),
        ("torchmetrics MulticlassAUROC, on probabilities", "tests/parity/test_torchmetrics.py"),
        ("exact rationals", "tests/validation/metrics/test_auc.py"),
    ),
    "AUROC": (
        ("scikit-learn roc_auc_score", "tests/parity/test_sklearn.py"),
        ("torchmetrics BinaryAUROC, on probabilities", "tests/parity/test_torchmetrics.py"),
    ),
    "EER": (
        ("the crossing on scikit-learn's roc_curve", "tests/parity/test_sklearn.py"),
        ("the crossing on torchmetrics' BinaryROC", "tests/parity/test_torchmetrics.py"),
        ("exact rationals", "tests/validation/metrics/test_eer.py"),
    ),
    "TPRatFPR": (("the ROC polyline in exact rationals", "tests/test_operating.py"),),
    "NMSE": (("the definition in extended precision", "tests/test_nmse.py"),),
    "SGCS": (("the definition in extended precision", "tests/test_nmse.py"),),
    "SISDR": (
        ("torchmetrics scale_invariant_signal_distortion_ratio", "tests/test_sisdr.py"),
        ("the definition in extended precision", "tests/test_sisdr.py"),
    ),
    "DBAScore": (("the definition in NumPy", "tests/test_beams.py"),),
    "BeamPowerLoss": (("the definition in NumPy", "tests/test_beams.py"),),
    "RSRPAccuracy": (("the definition in NumPy", "tests/test_beams.py"),),
    "Bleu": (
        ("sacrebleu and torchmetrics", "tests/validation/metrics/test_captions.py"),
        ("sacrebleu's tokenizer", "tests/test_text_tokenizers.py"),
    ),
    "Meteor": (("nltk with the whole WordNet 3.0", "tests/test_text_synonyms.py"),),
    "CIDER": (("pycocoevalcap", "tests/validation/metrics/test_captions.py"),),
    "ExactMatch": (
        ("torchmetrics squad", "tests/validation/metrics/test_qa.py"),
        ("torchmetrics' normalizer", "tests/test_text_tokenizers.py"),
    ),
    "F1": (("torchmetrics squad", "tests/validation/metrics/test_qa.py"),),
    "RelL2": (("the protocol's formula in extended precision", "tests/test_fields.py"),),
    "LocalQ50": (("the protocol's formula in extended precision", "tests/test_fields.py"),),
    "LocalCosQ50": (("the protocol's formula in extended precision", "tests/test_fields.py"),),
    "RealImagRMSE": (("the protocol's formula in extended precision", "tests/test_sparam_metrics.py"),),
    "MagWMAE": (("the protocol's formula in extended precision", "tests/test_sparam_metrics.py"),),
    "PhaseWMAE": (("the protocol's formula in extended precision", "tests/test_sparam_metrics.py"),),
}

_UNITS = {"1": "dimensionless", "deg": "degrees"}
_SECTIONS = ("Shapes", "Units", "Direction", "Errors", "Streams", "Reference", "Attributes")


def run_edge(expression: str) -> float | str:
    """The value of an edge case, or the name of the error it ends with."""
    s = np.sin(np.arange(16.0))[None]
    z = np.exp(1j * np.arange(12.0)).reshape(2, 2, 3)
    names = {name: getattr(metrics, name) for name in metrics.__all__} | {"nan": np.nan, "inf": np.inf, "s": s, "z": z}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(eval(expression, {}, names))
    except emma.EvaluationError as error:
        return type(error).__name__


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


# --- docstrings as Markdown ------------------------------------------------------------------------------------------


def docstring_markdown(text: str) -> str:
    """Docstring markup as Markdown: math directives and roles, double backticks, references to names."""
    text = re.sub(
        r"^\.\. math:: *(.*(?:\n[ \t]+\S.*|\n(?=\S).*(?=\n\n|\Z))*)",
        lambda found: "\n$$\n" + " ".join(found[1].split()) + "\n$$\n",
        _joined_math(text),
        flags=re.M,
    )
    text = re.sub(r":math:`([^`]+)`", lambda found: f"${found[1]}$", text)
    text = re.sub(r":(?:\w+:)?\w+:`([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"(?<![`\w$])`(\w+)`(?!`)", _linked, text)


def _joined_math(text: str) -> str:
    """A math directive with all its lines on one: a docstring may wrap it with or without an indent."""
    lines, out, inside = text.split("\n"), [], False
    for line in lines:
        if line.startswith(".. math::"):
            inside = True
            out.append(line.rstrip())
        elif inside and line.strip():
            out[-1] += " " + line.strip()
        else:
            inside = False
            out.append(line)
    return "\n".join(out)


def _linked(found: re.Match[str]) -> str:
    name = found[1]
    if any(name == kind.__name__ for kind in METRICS):
        return f"[`{name}`](metrics.md#{name.lower()})"
    if name in emma.__all__ and not name.startswith("_"):
        return f"[`{name}`](api.md#{name.lower()})"
    return f"`{name}`"


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    """The text of a metric's docstring before its first section, and the sections."""
    parts = re.split(rf"^({'|'.join(_SECTIONS)}):[ \n]", doc, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2]))
    if "Reference" in sections:  # a paragraph may follow it
        reference, _, rest = sections["Reference"].partition("\n\n")
        sections["Reference"] = reference
        parts[0] += "\n\n" + rest
    return parts[0].strip(), sections


def _attributes(text: str) -> dict[str, str]:
    """Name to description of a Google-style Attributes section."""
    found: dict[str, str] = {}
    for name, body in re.findall(r"^ {2}(\w+(?:, \w+)*): (.*(?:\n(?: {4}|\n).*)*)", text, re.M):
        found |= dict.fromkeys(name.split(", "), " ".join(body.split()))
    return found


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(x) for x in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- pages -----------------------------------------------------------------------------------------------------------


def _tasks_of(kind: type[Metric]) -> list[Task]:
    return [task for task in list_tasks() if any(type(m) is kind for m in task.metrics)]


def _direction(kind: type[Metric]) -> str:
    return f"{kind.direction} is better"


def _bounds(kind: type[Metric]) -> str:
    low, high = (f"{x:.4g}".replace("inf", "∞") for x in kind.bounds)
    return f"{low} to {high}"


def metric_page(*, edges: bool = True) -> str:
    """The metric reference; ``edges``: with the edge cases, which have to be computed."""
    rows = [
        (
            f"[{kind.__name__}](#{kind.__name__.lower()})",
            ", ".join(f"[{t.id}](tasks.md#{t.id.lower()})" for t in _tasks_of(kind)) or "-",
            _UNITS.get(kind.unit, kind.unit),
            _bounds(kind),
            kind.direction,
            "; ".join(dict.fromkeys(what for what, _ in HELD_BY[kind.__name__])),
        )
        for kind in METRICS
    ]
    text = f"""# Metric reference

This page is written when the site is built: text and formulas are the docstrings of emma-jax {emma.__version__}, the
table comes from the classes and the task registry, and every edge case was computed just then. Each metric is a class
in `emma_jax.metrics`; calling one scores a batch, and its `init`, `update`, `merge`, `all_reduce` and `compute` score
a stream.

All of them take `where` (bool; False means the sample is not there) and `weights` (non-negative integers) over the
sample axes. Host calls give float64 and raise typed errors; inside a JAX transform a metric gives float32, and NaN
where the host would raise.

{_table(("metric", "tasks", "unit", "range", "better", "held by tests to"), rows)}
"""
    return text + "\n".join(_metric_section(kind, edges) for kind in METRICS)


def _metric_section(kind: type[Metric], edges: bool) -> str:
    name = kind.__name__
    intro, sections = _sections(inspect.getdoc(kind) or "")
    described = _attributes(sections.get("Attributes", ""))
    lines = [f"## {name}\n", docstring_markdown(intro), ""]
    used = ", ".join(f"[{t.id}](tasks.md#{t.id.lower()})" for t in _tasks_of(kind)) or "no registered task"
    facts = [("Used by", used), ("Range", _bounds(kind))]
    facts += [(s, docstring_markdown(sections[s])) for s in _SECTIONS[:-1] if s in sections]
    held = "; ".join(f"{what} (`{where}`)" for what, where in HELD_BY[name])
    facts.append(("Held by tests to", held))
    lines.append(_table(("", ""), [(f"**{key}**", value) for key, value in facts]))
    if described:
        defaults = {key: p.default for key, p in inspect.signature(kind).parameters.items()}
        rows = [(f"`{key}`", _default(kind, key, defaults), docstring_markdown(v)) for key, v in described.items()]
        lines.append(_table(("parameter", "default", "meaning"), rows))
    if edges and name in EDGES:
        rows = [(f"`{call}`", f"**{_shown(run_edge(call))}**", why) for call, _, why in EDGES[name]]
        lines.append("Edge cases, as computed for this page:\n")
        if any(re.search(r"\bs\b", call) for call, _, _ in EDGES[name]):
            lines.append("(`s = np.sin(np.arange(16.0))[None]`)\n")
        if any(re.search(r"\bz\b", call) for call, _, _ in EDGES[name]):
            lines.append("(`z = np.exp(1j * np.arange(12.0)).reshape(2, 2, 3)`)\n")
        lines.append(_table(("call", "result", "why"), rows))
    return "\n".join(lines) + "\n"


def _default(kind: type[Metric], key: str, defaults: Mapping[str, Any]) -> str:
    value = defaults.get(key, inspect.Parameter.empty)
    if value is inspect.Parameter.empty and dataclasses.is_dataclass(kind):
        fields = {f.name: f.default for f in dataclasses.fields(kind)}
        value = fields.get(key, dataclasses.MISSING)
    return "-" if value in (inspect.Parameter.empty, dataclasses.MISSING) else f"`{value!r}`"


def tasks_page() -> str:
    """The task reference."""
    release = emma.load_release("v0.1-proposed")
    rows = []
    for task in list_tasks():
        names = ", ".join(m.name for m in task.metrics)
        rows.append(
            (f"[{task.id}](#{task.id.lower()})", task.preds, task.labels, names, "yes" if task.in_ood_avg else "no")
        )
    text = f"""# Task reference

Written from the registry and the release `{release.name}` that is shipped inside (`{release.digest[:23]}…`). A task is
a frozen set of metrics over the same predictions and labels: `emma.evaluate(id, preds, labels)` scores it,
`emma.get_task(id, k=5)` changes a parameter, `emma.register_task(emma.Task(...))` adds one of your own.

{_table(("task", "predictions", "labels", "metrics, headline first", "in OOD-avg"), rows)}
"""
    return text + "\n".join(_task_section(task, release) for task in list_tasks())


def _task_section(task: Task, release: Any) -> str:
    rows = [
        (
            m.name,
            f"[{type(m).__name__}](metrics.md#{type(m).__name__.lower()})",
            _UNITS.get(m.unit, m.unit),
            m.direction,
            ", ".join(f"`{k}={v!r}`" for k, v in m.info.config) or "-",
        )
        for m in task.metrics
    ]
    lines = [
        f"## {task.id}\n",
        f"- predictions: {task.preds}",
        f"- labels: {task.labels}",
        f"- sample axes of `where` and `weights`: {task.sample_axes}",
        f"- averaged into OOD-avg: {'yes, by ' + task.headline.name if task.in_ood_avg else 'no'}",
    ]
    entry = release.tasks.get(task.id)
    if entry is not None and entry.anchor is not None:
        anchor = entry.anchor
        lines.append(f"- proposed anchors: {anchor.m_min:g} and {anchor.m_max:g} ({anchor.basis})")
    return "\n".join(lines) + "\n\n" + _table(("reported as", "metric", "unit", "better", "parameters"), rows) + "\n"


_MODULES = (("emma_jax.training", training), ("emma_jax.emval", emval), ("emma_jax.io", emma.io))
_MORE = (
    ("emma_jax.sweeps", emma.sweeps),
    ("emma_jax.uncertainty", emma.uncertainty),
    ("emma_jax.report", report),
    ("emma_jax.adapters", adapters),
)


def api_page() -> str:
    """Functions and classes of the public API with their docstrings."""
    names = [n for n in emma.__all__ if not n.startswith("_") and not inspect.ismodule(getattr(emma, n))]
    errors = [n for n in names if inspect.isclass(getattr(emma, n)) and issubclass(getattr(emma, n), ValueError)]
    lines = [
        "# API reference\n",
        f"The public names of emma-jax {emma.__version__}. Metrics have [their own page](metrics.md).\n",
        "## emma_jax\n",
    ]
    lines += [_entry(name, getattr(emma, name)) for name in names if name not in errors]
    rows = [(f"`{n}`", docstring_markdown(_first(getattr(emma, n)))) for n in errors]
    lines += ["## Errors\n", _table(("error", "when"), rows)]
    for title, module in (*_MODULES, *_MORE):
        lines.append(f"## {title}\n\n{docstring_markdown(inspect.getdoc(module) or '')}\n")
        lines += [_entry(name, getattr(module, name)) for name in module.__all__]
    return "\n".join(lines)


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0]


def _entry(name: str, thing: Any) -> str:
    return f"### {name}\n\n```text\n{name}{_signature(thing)}\n```\n\n{_google(inspect.getdoc(thing) or '')}\n"


def _signature(thing: Any) -> str:
    """Parameters with their defaults; the text says what they are."""
    try:
        given = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in given.parameters.values()]
    signature = str(given.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<factory>|<[^>]*>", "...", signature)


def _google(doc: str) -> str:
    """A Google-style docstring: its Args, Returns, Raises, Attributes and References as lists."""
    parts = re.split(r"^(Args|Returns|Raises|Attributes|References|Reference|Yields):[ \n]", doc, flags=re.M)
    lines = [docstring_markdown(_literal(parts[0].strip()))]
    for title, body in zip(parts[1::2], parts[2::2]):
        body, _, rest = body.partition("\n\n") if not body.startswith(" ") else _dedented(body)
        items = re.findall(r"^ {2}(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*(?:\n {4}.*)*)", body, re.M)
        lines.append(f"\n**{title}**\n")
        if items and title != "Returns":
            lines += [f"- `{key}`: {docstring_markdown(' '.join(v.split()))}" for key, v in items]
        else:
            lines.append(docstring_markdown(" ".join(body.split())))
        if rest.strip():
            lines.append("\n" + docstring_markdown(_literal(rest.strip())))
    return "\n".join(lines)


def _dedented(body: str) -> tuple[str, str, str]:
    """A section's indented part, and what follows it at the margin."""
    lines = body.split("\n")
    end = next((i for i, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[:end]), "", "\n".join(lines[end:])


def _literal(text: str) -> str:
    """``::`` blocks as fenced ones."""
    return re.sub(
        r"::\n\n((?:(?: {2,}.*)?\n?)+)",
        lambda found: ":\n\n```text\n" + inspect.cleandoc(found[1]) + "\n```\n\n",
        text,
    )


def pages(*, edges: bool = True) -> dict[str, str]:
    """Path in the site to Markdown, for every generated page."""
    metric = metric_page(edges=edges)
    return {"reference/metrics.md": metric, "reference/tasks.md": tasks_page(), "reference/api.md": api_page()}


if __name__ == "__main__":
    for path, page in pages().items():
        print(f"<!-- {path} -->\n{page}")
