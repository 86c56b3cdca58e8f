"""Metadata of a release as Croissant 1.0 (JSON-LD on schema.org), so that dataset search and loaders can read it.

Reference: Croissant Format Specification, version 1.0, MLCommons, 2024, http://mlcommons.org/croissant/1.0.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from emma_jax.errors import ReleaseError
from emma_jax.release import MANIFEST, LabelFile, Release, canonical_json

__all__ = ["croissant_metadata"]

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
_CR = (
    "citeAs column extract field fileProperty fileObject fileSet format includes isLiveDataset jsonPath key md5 "
    "parentField path recordSet references regex repeated replace separator source subField transform"
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _CR.split()},
}
# npz is a zip of arrays, npy has no registered type of its own
_MEDIA_TYPES = {
    ".npz": "application/zip",
    ".npy": "application/octet-stream",
    ".csv": "text/csv",
    ".jsonl": "application/jsonl",
    ".json": "application/json",
}


def croissant_metadata(
    release: Release,
    *,
    url: str,
    license: str,
    creator: str,
    date_published: str,
    description: str | None = None,
    version: str = "1.0.0",
    cite_as: str | None = None,
) -> dict[str, Any]:
    """The Croissant description of a release: every label file and the manifest as a ``FileObject`` with its sha256.

    Args:
      release: with its label files, which are read for their sizes.
      url: of the dataset's page; file addresses in it are relative to the release folder.
      license: address or SPDX name of the licence.
      creator: who made it.
      date_published: ISO date, YYYY-MM-DD.
      description: in words; by default what the release says of itself.
      version: MAJOR.MINOR.PATCH of the dataset.
      cite_as: how to cite it, or None.

    Returns:
      JSON-ready content of ``croissant.json``. Sizes (``contentSize``) are in bytes. It has no record sets: labels are
      read by `emma_jax.io.read_labels`.

    Raises:
      ReleaseError: a label file that is not as pinned, or an argument that is empty or no date or version.
    """
    for name, value in (("url", url), ("license", license), ("creator", creator)):
        if not value.strip():
            raise ReleaseError("has to be given", argument=name)
    try:
        datetime.date.fromisoformat(date_published)
    except ValueError:
        raise ReleaseError(f"has to be YYYY-MM-DD, not {date_published!r}", argument="date_published") from None
    if re.fullmatch(r"\d+\.\d+\.\d+", version) is None:
        raise ReleaseError(f"has to be MAJOR.MINOR.PATCH, not {version!r}", argument="version")
    manifest = canonical_json(release.manifest())
    files = [_file_object(MANIFEST, len(manifest), _sha256(manifest), f"Manifest of release {release.name}")]
    for task_id, entry in release.tasks.items():
        splits: Mapping[str, LabelFile] = {**entry.folds, **({"real": entry.real} if entry.real else {})}
        for fold, file in splits.items():
            split = "real captures" if file.axis is None else f"{file.axis} {fold}"
            text = f"Labels of {task_id}, {split}, {file.n} samples"
            files.append(_file_object(file.path, len(release.label_bytes(task_id, fold)), file.sha256, text))
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": re.sub(r"[^A-Za-z0-9_-]", "-", release.name),
        "description": description or _description(release),
        "url": url,
        "license": license,
        "creator": {"@type": "sc:Organization", "name": creator},
        "datePublished": date_published,
        "version": version,
        **({"citeAs": cite_as} if cite_as else {}),
        "isLiveDataset": False,
        "keywords": ["benchmark", "radio frequency", "machine learning", *release.tasks],
        "distribution": files,
    }


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _file_object(path: str, size: int, sha256: str, description: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path,
        "description": description,
        "contentUrl": path,
        "contentSize": f"{size} B",
        "encodingFormat": _MEDIA_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream"),
        "sha256": sha256,
    }


def _description(release: Release) -> str:
    state = "frozen" if release.frozen else "not frozen"
    tasks = ", ".join(release.tasks)
    return (
        f"Labels of the EMMA release {release.name} ({state}, {release.digest}, protocol {release.protocol_version}) "
        f"for the tasks {tasks}: each fold holds out one environment, band or unit."
    )
