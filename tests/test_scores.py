"""Scores and Validity: mappings that are pytrees, keep the order of metrics, and become strict JSON."""

from __future__ import annotations

import copy
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emma_jax as emma

N = 40
RNG = np.random.default_rng(0)
LABELS = (np.arange(N) % 3).astype(np.int32)
SCORES = RNG.normal(size=(N, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def host() -> emma.Scores:
    """A host evaluation of two metrics."""
    return emma.evaluate("E-ID-FP", SCORES, LABELS, where=np.arange(N) > 2, weights=np.full(N, 2))


@pytest.fixture(scope="module")
def traced() -> emma.Scores:
    """The same from a jitted function."""
    run = jax.jit(lambda p, w, c: emma.evaluate("E-ID-FP", p, LABELS, where=w, weights=c))
    return run(SCORES, np.arange(N) > 2, np.full(N, 2))


def strict(content):
    """JSON text without NaN or Infinity tokens, parsed back."""
    text = json.dumps(content, allow_nan=False)
    return json.loads(text, parse_constant=lambda token: pytest.fail(token))


def test_a_mapping_in_the_order_of_the_metrics(host, traced):
    """Headline first, under trace as on the host; an unknown name lists the known ones."""
    for scores in (host, traced):
        assert list(scores) == ["Top1Accuracy", "EER"] and len(scores) == 2
        assert scores.headline == scores["Top1Accuracy"] and scores.task == "E-ID-FP"
        assert [i.name for i in scores.info] == list(scores) and [i.direction for i in scores.info] == [
            "higher",
            "lower",
        ]
        with pytest.raises(KeyError, match="Top1Accuracy, EER"):
            scores["top1"]
    assert isinstance(host["EER"], float) and isinstance(host.aux["EER"]["threshold"], float)


def test_validity_counts_samples_or_trials(host, traced):
    """n with weights, samples for accuracy and trials for EER; Python ints on the host."""
    for scores in (host, traced):
        assert scores.validity["Top1Accuracy"].n == 2 * (N - 3) and scores.validity["EER"].n == 6 * (N - 3)
        assert scores.validity["EER"].n_used == 6 * (N - 3) and scores.validity["EER"].n_nonfinite == 0
    assert all(isinstance(v, int) for v in host.validity["EER"].as_dict().values())
    assert isinstance(host.validity["EER"].n, int) and isinstance(traced.validity["EER"].n, int)
    assert host.validity["EER"] == traced.validity["EER"] != host.validity["Top1Accuracy"]
    assert "n_used=222" in repr(host.validity["EER"])


def test_a_pytree_round_trip(host, traced):
    """Flatten and unflatten keep order, names, info, aux and validity; tree_map reaches every leaf."""
    for scores in (host, traced):
        leaves, structure = jax.tree.flatten(scores)
        again = jax.tree.unflatten(structure, leaves)
        assert list(again) == list(scores) and dict(again) == dict(scores)
        assert again.validity == scores.validity and again.aux == scores.aux
        assert (again.task, again.info) == (scores.task, scores.info)
        assert jax.tree.structure(again) == structure
    doubled = jax.tree.map(lambda x: x * 2, host)
    assert list(doubled) == list(host) and doubled["EER"] == 2 * host["EER"]
    assert doubled.aux["EER"]["threshold"] == 2 * host.aux["EER"]["threshold"]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(host)[0]]
    assert any("values" in p for p in paths) and any("validity" in p for p in paths)


def test_through_transforms():
    """As result of vmap and lax.map: leading axes on every leaf, order kept; inside, validity is uint32."""
    task = emma.Task("T", (emma.metrics.Top1Accuracy(), emma.metrics.PlainAccuracy()))
    rows = jnp.stack([SCORES, SCORES[::-1], -SCORES])
    one = lambda p: emma.evaluate(task, p, LABELS)  # noqa: E731
    for scores in jax.jit(lambda r: (jax.vmap(one)(r), jax.lax.map(one, r)))(rows):
        assert list(scores) == ["Top1Accuracy", "PlainAccuracy"] and scores.headline.shape == (3,)
        assert scores.validity["PlainAccuracy"].n.tolist() == [N] * 3
        entry = strict(scores.to_dict())["metrics"]["PlainAccuracy"]
        assert entry["validity"]["n"] == [N] * 3 and entry["value"] == scores["PlainAccuracy"].tolist()
    inside = jax.eval_shape(
        lambda p: (one(p).validity["Top1Accuracy"].n, one(p).validity["Top1Accuracy"].n_used), SCORES
    )
    assert all(x.shape == () and x.dtype == np.uint32 for x in inside)


def test_copies(host):
    """copy, deepcopy and pickle give an equal mapping."""
    for other in (copy.copy(host), copy.deepcopy(host), pickle.loads(pickle.dumps(host))):
        assert dict(other) == dict(host) and list(other) == list(host) and other.validity == host.validity


def test_strict_json(host, traced):
    """to_dict holds value, direction, unit, configuration, validity and aux, and is strict JSON."""
    for scores in (host, traced):
        content = strict(scores.to_dict())
        assert content["task"] == "E-ID-FP" and list(content["metrics"]) == ["Top1Accuracy", "EER"]
        entry = content["metrics"]["EER"]
        assert entry["value"] == float(scores["EER"]) and entry["direction"] == "lower" and entry["unit"] == "1"
        assert entry["validity"] == scores.validity["EER"].as_dict()
        assert entry["aux"]["threshold"] == float(scores.aux["EER"]["threshold"])
        assert entry["config"] == {"capacity": None, "score_dtype": "float32", "score_range": None}
    assert strict(emma.evaluate("E-LOC-AOA", [1.0], [2.0]).to_dict())["metrics"]["MeanAngularError"]["unit"] == "deg"


def test_undefined_and_infinite_values_in_json():
    """NaN becomes null with a reason, an infinity the string "inf" or "-inf"; nothing else changes."""
    undefined = jax.jit(lambda p, y: emma.evaluate("E-SC-SENSE", p, y))(SCORES[:, 0], np.ones(N, np.int32))
    entry = strict(undefined.to_dict())["metrics"]["AUC"]
    assert entry["value"] is None and entry["reason"]
    task = emma.Task("T", (emma.metrics.EER(),))
    infinite = emma.evaluate(task, np.array([np.inf, -np.inf]), [1, 0])
    assert strict(infinite.to_dict())["metrics"]["EER"]["aux"]["threshold"] == "inf"
    groups = emma.evaluate_groups("E-SC-SENSE", SCORES[:, 0], LABELS % 2, LABELS % 2, num_groups=2)
    entry = strict(groups.to_dict())["metrics"]["AUC"]
    assert entry["value"] == [None, None] and entry["reason"]


def test_config_tells_how_a_value_was_made():
    """Every parameter of a metric stands in the result."""
    scores = emma.evaluate("E-CH-BEAM", SCORES, LABELS, k=2)
    assert strict(scores.to_dict())["metrics"]["TopKAccuracy"]["config"] == {
        "k": 2, "num_classes": None, "input": "scores", "index_base": None,
    }  # fmt: skip
    radians = emma.Task("T", (emma.metrics.MeanAngularError(period=180, unit="rad"),))
    config = strict(emma.evaluate(radians, [1.0], [2.0]).to_dict())["metrics"]["MeanAngularError"]["config"]
    assert config == {"period": 180, "input_unit": "rad"}
    ranged = emma.metrics.AUC(input="binary", score_range=(0, 1))
    state = ranged.update(ranged.init(), np.float32([0.1, 0.9]), [0, 1])
    config = strict(emma.Task("T", (ranged,)).compute({"AUC": state}).to_dict())["metrics"]["AUC"]["config"]
    assert config["score_range"] == [0.0, 1.0]
