# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let torchvision be imported beside a CPU build of torch.

torchvision's wheel on the package index carries a CUDA library, which does not load there, so its Python part fails
with "operator torchvision::nms does not exist". Text models never call these operators; that they are declared is
enough. headroom_torchvision.pth imports this module at interpreter start, so it must stay cheap: torch is touched
only when torchvision itself is loaded, and nothing is imported here that the interpreter has not loaded already.
"""

from __future__ import annotations

import importlib.machinery
import sys

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[object] = []  # a torch.library.Library takes its operators along when it is collected


def declare_operators() -> None:
    """Declare torchvision::nms and torchvision::qnms without an implementation, once."""
    import torch

    if not _kept:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + _SCHEMA)
        _kept.append(library)


class _BeforeTorchvision:
    """Finds torchvision as ever, but has the operators declared before its code runs."""

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        """The protocol of sys.meta_path; None leaves every other module to the next finder."""
        if fullname != "torchvision":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):  # type: ignore[no-untyped-def]
                declare_operators()
                run(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _BeforeTorchvision())  # type: ignore[arg-type]
