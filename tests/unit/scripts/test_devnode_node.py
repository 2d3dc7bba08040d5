# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are removed whatever state podman finds them in."""

from __future__ import annotations

from pathlib import Path

import pytest

from devnode import node
from devnode.names import Clone
from devnode.steps import StepError


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_container_that_ends_while_it_is_removed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    clone = Clone(tmp_path)
    record = clone.record("n")
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    calls: list[tuple[str, ...]] = []

    def run(*command: str) -> str:
        calls.append(command)
        if len(calls) <= failures:
            raise StepError("container state improper")
        return ""

    monkeypatch.setattr(node, "output_of", run)
    monkeypatch.setattr(node.keys, "forget_host", lambda *_args: None)
    if failures == 2:
        with pytest.raises(StepError, match="state improper"):
            node.down(clone, "n")
        assert record.exists()
        return
    node.down(clone, "n")
    assert len(calls) == failures + 1 and all(clone.container("n") in call for call in calls)
    assert not record.exists()
