# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed answers of a running SGLang server; what it says of its own keys is dropped on arrival."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What reading an answer of another shape raises.
_UNEXPECTED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class ApiError(Exception):
    """The server did not answer, or not with what the endpoint promises; the text says what happened."""


class ApiTimeout(ApiError):
    """The server took the request but did not answer in time: it may be busy."""


@dataclass(frozen=True)
class Completion:
    """One answer of /v1/completions; tokens as the server counts them."""

    model: str
    text: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class ServerInfo:
    """The figures of /server_info that are safe to keep."""

    version: str
    kv_tokens: int
    context_tokens: int


@dataclass(frozen=True)
class Load:
    """Requests at work and waiting, summed over the data-parallel ranks."""

    running: int
    queued: int


class SglangApi:
    """A client of one server."""

    def __init__(self, host: str, port: int, api_key: str = "") -> None:
        """Address the server from its own node: a wildcard address is asked over the loopback one."""
        address = _ANY.get(host, host)
        self._base = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def health(self, timeout_s: float) -> int:
        """Return the HTTP status of /health (200 ready, 503 starting or draining).

        Raises:
            ApiError: If there is no HTTP answer at all.
        """
        try:
            self._open("/health", None, timeout_s).close()
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def models(self, timeout_s: float) -> dict[str, int]:
        """Return the served model names with the context length in tokens (0 where the server does not say)."""
        answer = self._json("/v1/models", None, timeout_s)
        try:
            return {str(item["id"]): int(item.get("max_model_len") or 0) for item in answer["data"]}
        except _UNEXPECTED as error:
            raise ApiError(f"/v1/models does not list models: {_named(error)}") from None

    def complete(self, model: str, prompt: str, tokens: int, timeout_s: float) -> Completion:
        """Ask for the greedy continuation of a prompt by exactly `tokens` tokens."""
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        answer = self._json("/v1/completions", body, timeout_s)
        try:
            usage = answer["usage"]
            return Completion(
                str(answer["model"]),
                str(answer["choices"][0]["text"]),
                int(usage["prompt_tokens"]),
                int(usage["completion_tokens"]),
            )
        except _UNEXPECTED as error:
            raise ApiError(f"/v1/completions answers no completion: {_named(error)}") from None

    def embed(self, model: str, text: str, timeout_s: float) -> int:
        """Return the number of dimensions of a text's embedding."""
        answer = self._json("/v1/embeddings", {"model": model, "input": text}, timeout_s)
        try:
            return len(answer["data"][0]["embedding"])
        except _UNEXPECTED as error:
            raise ApiError(f"/v1/embeddings answers no embedding: {_named(error)}") from None

    def server_info(self, timeout_s: float) -> ServerInfo:
        """Return the figures of /server_info; everything else in it, keys included, is dropped here."""
        info = self._json("/server_info", None, timeout_s)
        try:
            return ServerInfo(
                version=str(info.get("version", "")),
                kv_tokens=int(info.get("max_total_num_tokens") or 0),
                context_tokens=int(info.get("max_req_input_len") or 0),
            )
        except _UNEXPECTED:
            # What is wrong is not shown: it could be anything of this answer.
            raise ApiError("/server_info answers figures that are none") from None

    def load(self, timeout_s: float) -> Load:
        """Return the requests at work and waiting (/v1/loads, in all supported releases)."""
        answer = self._json("/v1/loads", None, timeout_s)
        try:
            loads = answer["loads"]
            return Load(
                sum(int(item.get("num_running_reqs") or 0) for item in loads),
                sum(int(item.get("num_waiting_reqs") or 0) for item in loads),
            )
        except _UNEXPECTED as error:
            raise ApiError(f"/v1/loads answers no loads: {_named(error)}") from None

    def _json(self, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        try:
            with self._open(path, body, timeout_s) as answer:
                data = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ApiError(f"{path} answers {error.code}: {_reason(error)}") from None
        except TimeoutError:
            raise ApiTimeout(f"{path} did not answer within {timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{path} broke off its answer: {_named(error)}") from None
        except (ValueError, RecursionError):
            raise ApiError(f"{path} does not answer JSON") from None
        if not isinstance(data, dict):
            raise ApiError(f"{path} answers no JSON object")
        return data

    def _open(self, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers, **({"Content-Type": "application/json"} if data else {}))
        request = urllib.request.Request(self._base + path, data, headers)
        try:
            # No proxy of the environment may come between a node and its own server.
            return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout_s)
        except urllib.error.HTTPError:
            raise
        except TimeoutError:
            raise ApiTimeout(f"{path} did not answer within {timeout_s:g} s") from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise ApiTimeout(f"{path} did not answer within {timeout_s:g} s") from None
            raise ApiError(f"{self._base}{path}: {reason}") from None
        except http.client.HTTPException as error:
            raise ApiError(f"{self._base}{path} does not speak HTTP: {_named(error)}") from None


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the server's own words for a refusal, as OpenAI's or FastAPI's format carries them."""
    try:
        text = error.read(65536).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        return str(error.reason)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return text[:300] or str(error.reason)
    if isinstance(data, dict):
        inner = data.get("error", data)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or text
        return str(inner)[:300]
    return text[:300]
