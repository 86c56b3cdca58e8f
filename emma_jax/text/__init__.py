"""Text on the host: tokenizers, answer normalizers, token ids and the METEOR synonym table.

Names load on first use: a process that only tokenizes need not import JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "SYNONYM_TABLE_DIGEST": "synonyms",
    "SynonymTable": "synonyms",
    "TokenBatch": "ids",
    "Tokenizer": "tokenizers",
    "Vocabulary": "ids",
    "get_normalizer": "squad",
    "get_tokenizer": "tokenizers",
    "load_synonyms": "synonyms",
    "meteor_scores": "meteor",
    "normalize_answer": "squad",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"emma_jax.text.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'emma_jax.text' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from emma_jax.text.ids import TokenBatch as TokenBatch
    from emma_jax.text.ids import Vocabulary as Vocabulary
    from emma_jax.text.meteor import meteor_scores as meteor_scores
    from emma_jax.text.squad import get_normalizer as get_normalizer
    from emma_jax.text.squad import normalize_answer as normalize_answer
    from emma_jax.text.synonyms import SYNONYM_TABLE_DIGEST as SYNONYM_TABLE_DIGEST
    from emma_jax.text.synonyms import SynonymTable as SynonymTable
    from emma_jax.text.synonyms import load_synonyms as load_synonyms
    from emma_jax.text.tokenizers import Tokenizer as Tokenizer
    from emma_jax.text.tokenizers import get_tokenizer as get_tokenizer
