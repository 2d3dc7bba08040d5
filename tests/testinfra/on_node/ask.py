# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on the node, as root: ask the server of a release one question and print the part of the answer that counts.

Arguments: the release's directory; models, generate, info or anonymous. The key is read here and goes into the
request only; of /server_info, which tells keys, two figures are kept.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TIMEOUT_S = 120
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}

directory, question = Path(sys.argv[1]), sys.argv[2]
release = json.loads((directory / "release.json").read_text(encoding="utf-8"))
credentials = directory / "credentials.yaml"
keys = json.loads(credentials.read_text(encoding="utf-8")) if credentials.exists() else {}
address = ANY.get(release["host"], release["host"])
base = f"http://[{address}]:{release['port']}" if ":" in address else f"http://{address}:{release['port']}"
# What a proxy of the environment would answer is not the server's answer.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(path: str, body: dict[str, Any] | None = None, key: str = keys.get("api-key", "")) -> dict[str, Any]:
    """Return `status` (0 without any HTTP answer), `error` and the JSON object of the answer as `data`."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(base + path, json.dumps(body).encode() if body else None, headers)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return {"status": answer.status, "error": "", "data": json.load(answer)}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "error": f"{path} answers {error.code}", "data": {}}
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error))
        return {"status": 0, "error": f"{base}{path}: {reason.replace(key, '***') if key else reason}", "data": {}}


def models() -> dict[str, Any]:
    """Return the served names."""
    answer = ask("/v1/models")
    names = [str(item.get("id")) for item in answer["data"].get("data", [])]
    return {"status": answer["status"], "error": answer["error"], "names": names}


def generate() -> dict[str, Any]:
    """Return what the server makes of a prompt: a text and its tokens, or the length of an embedding."""
    name, prompt = release["served_name"], "The capital of France is"
    if "--is-embedding" in release["argv"]:
        answer = ask("/v1/embeddings", {"model": name, "input": prompt})
        vectors = [item.get("embedding", []) for item in answer["data"].get("data", [])]
        return {"error": answer["error"], "dimensions": len(vectors[0]) if vectors else 0}
    body = {"model": name, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    answer = ask("/v1/completions", body)
    choices = answer["data"].get("choices") or [{}]
    return {
        "error": answer["error"],
        "tokens": (answer["data"].get("usage") or {}).get("completion_tokens", 0),
        "text": choices[0].get("text", ""),
    }


def info() -> dict[str, Any]:
    """Return the figures of /server_info that are no secret."""
    answer = ask("/server_info")
    data = answer["data"]
    return {
        "error": answer["error"],
        "version": data.get("version"),
        "kv_tokens": data.get("max_total_num_tokens"),
    }


def anonymous() -> dict[str, Any]:
    """Return the status of the same two questions without and with a wrong key."""
    body = {"model": release["served_name"], "prompt": "Hello", "max_tokens": 1}
    return {
        f"{path} {label}": ask(path, asked, key)["status"]
        for path, asked in (("/v1/models", None), ("/v1/completions", body))
        for label, key in (("without a key", ""), ("with a wrong key", "wrong"))
    }


print(json.dumps({"models": models, "generate": generate, "info": info, "anonymous": anonymous}[question]()))
