"""Make the records that come with the collection: the shape of the model that inventory/blackwell serves.

Usage: PYTHONPATH=scripts python -m suite.records

The checkpoint itself has 595 GB; its headers are made here from the figures that its publisher states, over as many
files, and read by the collection's own code.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from suite import checkpoints, links

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path("roles/sglang_server/files/records/blackwell/model.json")
_FILES = 64


def blackwell_model() -> str:
    """Return the record of Kimi-K2.5 in INT4, the same on every machine and at every time."""
    from ansible_collections.headroom.serving.plugins.module_utils import model_shape

    with tempfile.TemporaryDirectory(prefix="records-") as work:
        folder = Path(work, "model")
        checkpoints.write(folder, checkpoints.KIMI_K25, checkpoints.kimi_k25(), _FILES)
        shape = model_shape.from_dir(str(folder))
    # The key is for files on a disk, by their times.
    return model_shape.to_json(replace(shape, key="")) + "\n"


def main() -> int:
    """Write the record."""
    sys.path.insert(0, str(ROOT / links.COLLECTION.parents[2]))
    (ROOT / MODEL).write_text(blackwell_model(), encoding="utf-8")
    print(f"written: {MODEL}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
