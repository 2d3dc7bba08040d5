# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts SGLang with its keys masked in everything that it logs.

SGLang writes all its arguments into its log when it starts, the keys of --config included. A release that has keys
starts through a copy of this file, which runs in the engine's interpreter and so imports nothing of the collection.
"""

from __future__ import annotations

import json
import logging
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MASK = "********"


def keys(arguments: Sequence[str]) -> list[str]:
    """Return the keys that the file behind --config holds, longest first; a key may be part of another one.

    Raises:
        OSError: If the file can't be read.
        ValueError: If it is not JSON.
    """
    if "--config" not in arguments:
        return []
    path = Path(arguments[list(arguments).index("--config") + 1])
    values = [str(value) for value in json.loads(path.read_text(encoding="utf-8")).values()]
    # Arguments are logged as repr() shows them, in which some characters are escaped.
    return sorted({*values, *(repr(value)[1:-1] for value in values)}, key=len, reverse=True)


def masking(factory: Callable[..., logging.LogRecord], secrets: Sequence[str]) -> Callable[..., logging.LogRecord]:
    """Return a log record factory whose messages show MASK in place of the secrets."""

    def build(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = factory(*arguments, **options)
        if record.exc_info:
            # A formatter takes this text instead of formatting the exception itself.
            record.exc_text = _masked(logging.Formatter().formatException(record.exc_info), secrets)
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # A call with the wrong arguments: logging reports it, with all of them.
            message = f"{record.msg} {record.args!r}"
        shown = _masked(message, secrets)
        if shown != message:
            record.msg, record.args = shown, ()
        return record

    return build


def _masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


# The ranks are started by multiprocessing, which imports this file again in each of them under the second name.
if __name__ in ("__main__", "__mp_main__"):
    logging.setLogRecordFactory(masking(logging.getLogRecordFactory(), keys(sys.argv)))

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
