"""The stand-ins of molecule's scenarios are of the case that they are named after."""

from __future__ import annotations

import stat
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import hardware, host_memory
from suite import checkpoints

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "roles" / "sglang_server" / "files" / "records" / "blackwell" / "hardware.json"


def test_the_blackwell_host_has_the_memory_of_the_shipped_record() -> None:
    record = hardware.from_json(RECORD.read_text(encoding="utf-8"))
    shown = host_memory.plain_meminfo(ROOT / "molecule" / "blackwell" / "files")
    assert shown == (record.mem_total_bytes, record.mem_available_bytes, record.swap_bytes)
    assert record.mem_available_bytes == 408 * 10**9


def test_its_model_replaces_an_older_one_as_a_whole_and_anybody_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "kimi"
    folder.mkdir()
    (folder / "old.safetensors").touch()
    checkpoints.main(folder)
    files = list(folder.iterdir())
    weights = [path for path in files if path.suffix == ".safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["kimi"]
    assert len(weights) == 64 and "old.safetensors" not in {path.name for path in weights}
    assert round(sum(path.stat().st_size for path in weights) / 1e9) == 595
    # Sparse: headers and index only.
    assert sum(path.stat().st_blocks for path in files) * 512 < 100e6
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
