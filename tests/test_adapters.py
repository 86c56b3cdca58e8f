"""Bridges: the objects of clu and flax.nnx, torch tensors, data frames and flat dicts hold the number of `evaluate`."""

from __future__ import annotations

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import emma_jax as emma
from emma_jax import adapters
from emma_jax.errors import EvaluationError, NonFiniteError

RNG = np.random.default_rng(0)
C = 4
BATCHES = [(RNG.normal(size=(n, C)).astype(np.float32), RNG.integers(0, C, n)) for n in (40, 7, 33)]
LOGITS, LABELS = (np.concatenate(x) for x in zip(*BATCHES))
TOP1 = emma.metrics.Top1Accuracy(num_classes=C)
BALANCED = emma.metrics.BalancedAccuracy(num_classes=C)


# --- clu ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clu():
    return pytest.importorskip("clu.metrics", reason="clu is not installed")


def test_clu_metric_is_the_metric(clu) -> None:
    """Claim: batches merged by clu give the value of all samples at once. Oracle: evaluate's own value; no
    tolerance."""
    kind = adapters.clu_metric(BALANCED)
    assert issubclass(kind, clu.Metric)
    total = kind.empty()
    for logits, labels in BATCHES:
        total = total.merge(kind.from_model_output(logits=jnp.asarray(logits), labels=jnp.asarray(labels)))
    assert total.compute() == BALANCED(LOGITS, LABELS)
    assert total.compute_value().value == BALANCED(LOGITS, LABELS)


def test_clu_collection_in_a_jitted_step(clu) -> None:
    """Claim: a collection of a task's metrics beside clu's own Average, updated in jit, with a mask of numbers.
    Oracle: evaluate with ``where``; no tolerance."""
    task = emma.get_task("E-LOC-LOS", num_classes=C)
    kind = adapters.clu_collection(task, loss=clu.Average.from_output("loss"))
    assert issubclass(kind, clu.Collection)
    mask = (np.arange(len(LABELS)) % 3 > 0).astype(np.float32)

    @jax.jit
    def step(metrics, logits, labels, mask):
        new = kind.single_from_model_output(logits=logits, labels=labels, mask=mask, loss=jnp.float32(2.0))
        return metrics.merge(new)

    metrics, start = kind.empty(), 0
    for logits, labels in BATCHES:
        metrics = step(metrics, logits, labels, mask[start : start + len(labels)])
        start += len(labels)
    values = metrics.compute()
    assert values["BalancedAccuracy"] == emma.evaluate(task, LOGITS, LABELS, where=mask > 0).headline
    assert values["loss"] == 2.0


def test_clu_reduce_over_devices(clu) -> None:
    """Claim: clu's reduce over gathered states is the sum. Oracle: evaluate; no tolerance."""
    kind = adapters.clu_metric(TOP1)
    stacked = jax.vmap(lambda p, t: kind.from_model_output(logits=p, labels=t))(
        LOGITS.reshape(8, 10, C), LABELS.reshape(8, 10)
    )
    assert stacked.reduce().compute() == TOP1(LOGITS, LABELS)


def test_clu_names_what_is_missing(clu) -> None:
    """Claim: an unknown output and a missing number of classes are typed errors that name them."""
    with pytest.raises(EvaluationError, match="labels"):
        adapters.clu_metric(TOP1).from_model_output(logits=LOGITS)
    with pytest.raises(EvaluationError, match="num_classes"):
        adapters.clu_metric(emma.metrics.BalancedAccuracy()).empty()
    with pytest.raises(EvaluationError, match="Metric or a Task"):
        adapters.clu_metric("E-LOC-AOA")  # type: ignore[arg-type]


# --- flax.nnx ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nnx():
    return pytest.importorskip("flax.nnx", reason="flax is not installed")


def test_nnx_metric_is_the_metric(nnx) -> None:
    """Claim: update, compute and reset of nnx, alone and in a MultiMetric inside nnx.jit. Oracle: evaluate; no
    tolerance."""
    metrics = nnx.MultiMetric(
        accuracy=adapters.nnx_metric(TOP1),
        balanced=adapters.nnx_metric(emma.get_task("E-LOC-LOS", num_classes=C)),
        loss=nnx.metrics.Average("loss"),
    )
    assert isinstance(metrics.accuracy, nnx.Metric)

    @nnx.jit
    def step(metrics, logits, labels):
        metrics.update(logits=logits, labels=labels, loss=jnp.float32(3.0))

    for _ in range(2):  # the second round starts from a reset
        metrics.reset()
        for logits, labels in BATCHES:
            step(metrics, jnp.asarray(logits), jnp.asarray(labels))
        values = metrics.compute()
        assert values["accuracy"] == TOP1(LOGITS, LABELS)
        assert values["balanced"] == BALANCED(LOGITS, LABELS)
        assert float(values["loss"]) == 3.0


def test_nnx_mask_and_bad_value(nnx) -> None:
    """Claim: a masked NaN is not there; a present one is the typed error of the metric at compute."""
    metric = adapters.nnx_metric(emma.metrics.MeanAngularError(), preds="angles", where="present")
    angles = jnp.array([10.0, jnp.nan, 30.0])
    metric.update(angles=angles, labels=jnp.array([12.0, 0.0, 30.0]), present=jnp.array([True, False, True]))
    assert metric.compute() == 1.0
    metric.update(angles=angles, labels=jnp.zeros(3))
    with pytest.raises(NonFiniteError):
        metric.compute()


# --- torch ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_torch_scores(torch, dtype) -> None:
    """Claim: tensors of every float type, also one that requires a gradient, score as their numbers do. Oracle:
    the same numbers from a list; no tolerance."""
    tensor = torch.as_tensor(LOGITS).to(getattr(torch, dtype)).requires_grad_()
    want = emma.evaluate("E-ID-AMC", np.array(tensor.tolist()), LABELS).headline
    preds, labels = adapters.from_torch((tensor, torch.as_tensor(LABELS)))
    assert emma.evaluate("E-ID-AMC", preds, labels).headline == want
    assert tensor.requires_grad


def test_torch_keeps_64_bits_and_shares_memory(torch) -> None:
    """Claim: float64 is not rounded, and a CPU tensor is not copied."""
    angles = torch.tensor([3.6e9 + 1.0, 0.0], dtype=torch.float64)
    array = adapters.from_torch(angles)
    assert array.dtype == np.float64 and array.ctypes.data == angles.data_ptr()
    assert emma.evaluate("E-LOC-AOA", array, np.zeros(2)).headline == 0.5


def test_torch_views(torch) -> None:
    """Claim: transposed, conjugated and empty tensors, and dicts of them, come out as they read. Oracle: tolist."""
    z = torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))
    half = torch.arange(6.0).reshape(2, 3).to(torch.bfloat16)
    for tensor in (z.T, z.conj(), z.conj().imag, half.T, half[:, ::2], half[:0]):
        got = adapters.from_torch({"x": [tensor]})["x"][0]
        assert np.asarray(got).tolist() == tensor.tolist() and got.shape == tuple(tensor.shape)
    assert adapters.from_torch("text") == "text"


def test_torch_without_the_adapter(torch) -> None:
    """Claim: a tensor given as it is scores rightly, or is a typed error: never a wrong number."""
    plain, labels = torch.as_tensor(LOGITS), torch.as_tensor(LABELS)
    assert emma.evaluate("E-ID-AMC", plain, labels).headline == TOP1(LOGITS, LABELS)
    for odd in (plain.clone().requires_grad_(), plain.to(torch.bfloat16)):
        try:
            value = emma.evaluate("E-ID-AMC", odd, labels).headline
        except EvaluationError as error:
            assert error.argument == "preds"
        else:
            assert value == emma.evaluate("E-ID-AMC", np.array(odd.tolist()), LABELS).headline


def test_torch_sparse_is_a_typed_error(torch) -> None:
    """Claim: what has no strides is refused by name."""
    with pytest.raises(EvaluationError, match="tensor"):
        adapters.from_torch(torch.eye(3).to_sparse())


# --- export --------------------------------------------------------------------------------------------------------


def _groups() -> emma.Scores:
    angles = np.array([10.0, 20.0, 30.0])
    return emma.evaluate_groups("E-LOC-AOA", angles, angles + np.array([1.0, 2.0, 3.0]), [0, 0, 2], num_groups=3)


def test_scalars_are_flat() -> None:
    """Claim: every metric, auxiliary value and count under a tag of its own, all floats."""
    scores = emma.evaluate("E-ID-FP", LOGITS, LABELS)
    flat = adapters.to_scalars(scores, prefix="val", validity=True)
    assert flat["val/E-ID-FP/Top1Accuracy"] == scores["Top1Accuracy"]
    assert flat["val/E-ID-FP/EER/threshold"] == scores.aux["EER"]["threshold"]
    assert flat["val/E-ID-FP/EER/n_used"] == 80 * C
    assert all(type(v) is float for v in flat.values())
    assert set(adapters.to_scalars(scores, aux=False)) == {"E-ID-FP/Top1Accuracy", "E-ID-FP/EER"}
    groups = adapters.to_scalars(_groups())
    assert groups["E-LOC-AOA/MeanAngularError/0"] == 1.5 and math.isnan(groups["E-LOC-AOA/MeanAngularError/1"])


def test_scalars_reach_a_tensorboard_writer(torch, tmp_path) -> None:
    """Claim: what is written is what TensorBoard's reader finds. Oracle: its event reader; float32."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    flat = adapters.to_scalars(emma.evaluate("E-ID-FP", LOGITS, LABELS))
    with SummaryWriter(str(tmp_path)) as writer:
        for tag, value in flat.items():
            writer.add_scalar(tag, value, 7)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {tag: events.Scalars(tag)[0].value for tag in flat} == {t: np.float32(v) for t, v in flat.items()}


def test_pandas_has_a_row_per_metric_and_group() -> None:
    """Claim: values, units and counts in the frame are those of the scores."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = adapters.to_pandas(emma.evaluate("E-ID-FP", LOGITS, LABELS))
    assert list(frame["metric"]) == ["Top1Accuracy", "EER"] and list(frame["direction"]) == ["higher", "lower"]
    assert list(frame["n_used"]) == [80, 80 * C]
    frame = adapters.to_pandas(_groups(), index_names=("environment",))
    assert list(frame["environment"]) == [0, 1, 2] and list(frame["n_used"]) == [2, 0, 1]
    assert frame["value"].fillna(-1).tolist() == [1.5, -1.0, 3.0] and set(frame["unit"]) == {"deg"}


def test_json_is_strict() -> None:
    """Claim: the text parses under a parser that refuses NaN and Infinity, and says what `to_dict` says."""

    def refuse(text):
        raise AssertionError(text)

    h = np.ones((2, 3))
    for scores in (_groups(), emma.evaluate("E-CH-CSI", h, h)):
        parsed = json.loads(adapters.to_json(scores), parse_constant=refuse)
        assert parsed == json.loads(json.dumps(scores.to_dict()))
    assert parsed["metrics"]["NMSE"]["value"] == "-inf"


def test_sharded_clu_state_equals_all_reduce(clu) -> None:
    """Claim: states made inside shard_map and gathered, clu's way, give the value of one device; no tolerance."""
    kind = adapters.clu_metric(TOP1)
    mesh = jax.make_mesh((jax.device_count(),), ("d",))
    n = jax.device_count() * 5

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P("d"))
    def states(p, t):
        return jax.tree_util.tree_map(lambda x: x[None], kind.from_model_output(logits=p, labels=t))

    rows = NamedSharding(mesh, P("d"))
    preds, labels = jax.device_put(LOGITS[:n], rows), jax.device_put(LABELS[:n], rows)
    assert jax.device_get(states(preds, labels)).reduce().compute() == TOP1(LOGITS[:n], LABELS[:n])
