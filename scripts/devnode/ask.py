# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the served model for a completion through SSH: the server listens on the node's own loopback address only."""

from __future__ import annotations

import dataclasses
import http.client
import io
import json
import subprocess
from typing import Any, cast

from . import node
from .names import Clone
from .steps import StepError

_TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True)
class Completion:
    """What the server answered."""

    model: str
    text: str
    tokens: int  # generated, as the server counts them


def complete(
    clone: Clone, name: str, model: str, prompt: str, tokens: int, port: int = 30000, key: str | None = None
) -> Completion:
    """Let node `name` go on with `prompt` by exactly `tokens` tokens, each the most likely one.

    StepError tells what the server answered instead, or that it did not.
    """
    request = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    status, body = post(clone, name, "/v1/completions", request, port, key)
    try:
        answer = json.loads(body)
        found = Completion(answer["model"], answer["choices"][0]["text"], answer["usage"]["completion_tokens"])
    except (ValueError, LookupError, TypeError):
        raise StepError(f"node {name}: the server answered {status}: {body[:300]}") from None
    if found.tokens != tokens or found.model != model:
        raise StepError(f"node {name}: asked {model} for {tokens} tokens, got {found.tokens} of {found.model}")
    return found


def post(
    clone: Clone, name: str, path: str, value: dict[str, Any], port: int = 30000, key: str | None = None
) -> tuple[int, str]:
    """POST `value` as JSON to the node's 127.0.0.1:`port`; returns status and body."""
    body = json.dumps(value).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", *([f"Authorization: Bearer {key}"] if key else []), "", ""]
    # ssh -W carries one connection over its standard input and output: no local port to choose.
    words = node.ssh_command(clone, name)
    command = [*words[:-1], "-W", f"127.0.0.1:{port}", words[-1]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            child.stdin.write("\r\n".join(lines).encode() + body)  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            answer = child.stdout.read()  # type: ignore[union-attr]
        finally:
            child.kill()
    if not answer:
        raise StepError(f"node {name}: nothing answers on 127.0.0.1:{port}")
    response = http.client.HTTPResponse(cast("Any", _Received(answer)))
    response.begin()
    return response.status, response.read().decode()


class _Received:
    """As much of a socket as http.client reads from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, _mode: str) -> io.BytesIO:
        """The whole answer as a file."""
        return io.BytesIO(self._content)
