"""Strict JSON: no NaN or Infinity token goes out or comes in, no key stands twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from emma_jax.errors import FileFormatError

__all__ = ["dumps_strict", "loads_strict", "strict_decode"]


def dumps_strict(value: Any) -> str:
    """JSON text without NaN or Infinity tokens, keys sorted, indented by one, a newline at the end.

    Args:
      value: mappings with string keys, sequences, strings, bools, numbers, None, NumPy or JAX scalars and arrays.

    Returns:
      The text. Infinities are the strings "inf" and "-inf"; NaN, an undefined value, is null.

    Raises:
      TypeError: anything else.
      ReleaseError: text that is not Unicode (a lone surrogate).
    """
    from emma_jax.release import canonical_json

    return canonical_json(_plain(value)).decode()


def _plain(item: Any) -> Any:
    from emma_jax.scores import json_number

    if item is None or isinstance(item, (str, bool, int)):
        return item
    if isinstance(item, float):
        return json_number(item)
    if isinstance(item, Mapping):
        return {str(k): _plain(v) for k, v in item.items()}
    if isinstance(item, (list, tuple)):
        return [_plain(v) for v in item]
    if hasattr(item, "__array__"):
        return _plain(np.asarray(item).tolist())
    raise TypeError(f"{type(item).__name__} is not JSON")


def loads_strict(data: bytes, name: str) -> Any:
    """The value of one strict JSON document in UTF-8 (a byte order mark is tolerated).

    Args:
      data: the document.
      name: what errors call it.

    Returns:
      dicts, lists, strings, bools, ints, floats, None.

    Raises:
      FileFormatError: not UTF-8, not JSON, a NaN or Infinity token, or a key given twice.
    """
    try:
        return strict_decode(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"not UTF-8 text: {error.reason}", argument=name) from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"not strict JSON: {str(error)[:120]}", argument=name) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key is given twice")
    return record


def _no_constant(token: str) -> NoReturn:
    raise ValueError(f'the token {token} is not JSON; write the string "nan", "inf" or "-inf"')


strict_decode = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant).decode
"""Text to value; ValueError (or RecursionError) where it is not strict JSON."""
