# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a server for completions as long as a file is there, and once more: python3 - FILE PORT MODEL.

Prints how many answers came. Ends with an error at the first that fails, is short or says something else.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

TOKENS = 8
# A client that waits for it forever would hide a server that hangs.
ANSWER_S = 60
LONGEST_S = 300


def ask(port: str, model: str) -> str:
    """Return the text of a greedy completion."""
    body = {"model": model, "prompt": "The capital of France is", "max_tokens": TOKENS, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps({**body, "ignore_eos": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
        answer = json.load(response)
    if answer["usage"]["completion_tokens"] != TOKENS:
        sys.exit(f"{answer['usage']} instead of {TOKENS} tokens")
    return str(answer["choices"][0]["text"])


def main(flag: Path, port: str, model: str) -> None:
    """Ask until the file has gone."""
    first = ask(port, model)
    answers, began, last = 1, time.monotonic(), False
    while not last:
        time.sleep(0.5)
        last = not flag.exists()
        text = ask(port, model)
        answers += 1
        if text != first:
            sys.exit(f"answer {answers} is {text!r}, the first was {first!r}")
        if time.monotonic() - began > LONGEST_S:
            sys.exit(f"{flag} is still there after {LONGEST_S} s")
    print(answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
