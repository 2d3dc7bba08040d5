# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of a server, against real HTTP servers that answer well, badly, late or not at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import sglang_api
from ansible_collections.headroom.serving.plugins.module_utils.sglang_api import (
    ApiError,
    ApiTimeout,
    Completion,
    Load,
    ServerInfo,
    SglangApi,
)

KEY = "s3cr3t-0123456789"
CALLS: dict[str, Callable[[SglangApi], object]] = {
    "models": lambda api: api.models(20.0),
    "complete": lambda api: api.complete("m", "p", 8, 20.0),
    "embed": lambda api: api.embed("m", "t", 20.0),
    "server_info": lambda api: api.server_info(20.0),
    "load": lambda api: api.load(20.0),
}


class Server(ThreadingHTTPServer):
    """Answers every request with what the test has set and keeps what was asked."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(address, Handler)
        self.status = 200
        self.body: bytes = b"{}"
        self.delay_s = 0.0
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []

    def says(self, data: Any, status: int = 200) -> None:
        self.status = status
        self.body = data if isinstance(data, bytes) else json.dumps(data).encode()

    def handle_error(self, *_: Any) -> None:
        """Clients that do not wait for an answer are part of the tests."""

    @property
    def api(self) -> SglangApi:
        return SglangApi("127.0.0.1", self.server_port)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        time.sleep(self.server.delay_s)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def raw() -> Iterator[Callable[[bytes], int]]:
    """Start servers that send some bytes, whatever is asked, and hang up; returns the port."""
    sockets: list[socket.socket] = []

    def start(answer: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _peer = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in sockets:
        listener.close()


def completion(**changes: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "text_completion",
        "model": "m",
        "choices": [{"index": 0, "text": " Paris", "finish_reason": "length"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13},
        **changes,
    }


@pytest.mark.parametrize("status", [200, 401, 404, 500, 503])
def test_health_is_a_status(server: Server, status: int) -> None:
    server.says(b"", status)
    assert server.api.health(20.0) == status
    assert server.seen[0][:2] == ("GET", "/health")


@pytest.mark.parametrize(
    ("data", "models"),
    [
        ([], {}),
        ([{"id": "a", "max_model_len": 4096}], {"a": 4096}),
        ([{"id": "a"}], {"a": 0}),
        ([{"id": "a", "max_model_len": None}], {"a": 0}),
        ([{"id": "a", "max_model_len": "8"}, {"id": "org/b", "max_model_len": 2}], {"a": 8, "org/b": 2}),
    ],
)
def test_models(server: Server, data: Any, models: dict[str, int]) -> None:
    server.says({"object": "list", "data": data})
    assert server.api.models(20.0) == models


def test_a_completion_is_greedy_and_of_an_exact_length(server: Server) -> None:
    server.says(completion())
    assert server.api.complete("m", "The capital", 8, 20.0) == Completion("m", " Paris", 5, 8)
    method, path, headers, body = server.seen[0]
    assert (method, path, headers["Content-Type"]) == ("POST", "/v1/completions", "application/json")
    assert body == {"model": "m", "prompt": "The capital", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def test_an_embedding_is_its_dimensions(server: Server) -> None:
    server.says({"data": [{"embedding": [0.1] * 384}]})
    assert server.api.embed("m", "text", 20.0) == 384
    assert server.seen[0][3] == {"model": "m", "input": "text"}


@pytest.mark.parametrize(
    ("answer", "load"),
    [
        ([], Load(0, 0)),
        ([{"num_running_reqs": 3, "num_waiting_reqs": 2}], Load(3, 2)),
        ([{"num_running_reqs": 3, "num_waiting_reqs": 2}, {"num_running_reqs": 1, "num_waiting_reqs": 5}], Load(4, 7)),
        ([{"num_running_reqs": None}, {}], Load(0, 0)),
    ],
)
def test_load_is_summed_over_the_ranks(server: Server, answer: Any, load: Load) -> None:
    server.says({"loads": answer})
    assert server.api.load(20.0) == load


@pytest.mark.parametrize(
    "info",
    [
        {"api_key": KEY},
        {"admin_api_key": KEY},
        {"internal_states": [{"api_key": KEY}], "hf_token": KEY},
        {"version_of": KEY, "model_path": f"/x?{KEY}", "ssl_keyfile_password": KEY},
    ],
)
def test_keys_in_server_info_are_dropped_on_arrival(server: Server, info: dict[str, Any]) -> None:
    server.says({"version": "0.5.14", "max_total_num_tokens": 4096, "max_req_input_len": 4090, **info})
    kept = server.api.server_info(20.0)
    assert kept == ServerInfo("0.5.14", 4096, 4090)
    assert KEY not in repr(kept) and KEY not in str(vars(kept))


@pytest.mark.parametrize(
    "info", [{"max_total_num_tokens": KEY}, {"max_req_input_len": [KEY]}, {"max_total_num_tokens": {KEY: 1}}]
)
def test_figures_that_are_none_are_not_shown(server: Server, info: dict[str, Any]) -> None:
    server.says(info)
    with pytest.raises(ApiError) as caught:
        server.api.server_info(20.0)
    assert KEY not in str(caught.value)


def test_server_info_without_figures(server: Server) -> None:
    server.says({"max_total_num_tokens": None})
    assert server.api.server_info(20.0) == ServerInfo("", 0, 0)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        pytest.param(401, {"error": "Unauthorized"}, "Unauthorized", id="sglang's key check"),
        pytest.param(401, {"error": {"message": "no key", "type": "x", "code": 401}}, "no key", id="openai"),
        pytest.param(
            400,
            {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
            "too long",
            id="sglang's openai layer",
        ),
        pytest.param(404, {"detail": "Not Found"}, "Not Found", id="fastapi"),
        pytest.param(
            422,
            {"detail": [{"loc": ["body", "prompt"], "msg": "field required"}]},
            "field required",
            id="fastapi validation",
        ),
        pytest.param(500, {"detail": {"message": "deep"}}, "deep", id="fastapi with a mapping"),
        pytest.param(500, b"Internal Server Error", "Internal Server Error", id="starlette"),
        pytest.param(503, b"", "Service Unavailable", id="nothing"),
        pytest.param(502, b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>", id="a proxy"),
        pytest.param(500, [1, 2], "[1, 2]", id="a list"),
        pytest.param(500, {"error": {}}, "{", id="an empty error"),
        pytest.param(500, {}, "{}", id="an empty object"),
        pytest.param(500, {"error": None}, "None", id="an error that is none"),
        pytest.param(500, b"\xff\xfe", "\ufffd", id="no text"),
    ],
)
def test_a_refusal_in_the_servers_own_words(server: Server, call: str, status: int, body: Any, reason: str) -> None:
    server.says(body, status)
    with pytest.raises(ApiError) as caught:
        CALLS[call](server.api)
    assert f" answers {status}: " in str(caught.value)
    assert reason in str(caught.value)
    assert not isinstance(caught.value, ApiTimeout)


@pytest.mark.parametrize(
    "body", [{"detail": "x" * 5000}, {"error": {"message": "x" * 100_000}}, b"x" * 100_000, ["x" * 1000]]
)
def test_a_long_refusal_is_cut(server: Server, body: Any) -> None:
    server.says(body, 500)
    with pytest.raises(ApiError) as caught:
        server.api.models(20.0)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "body", [b"", b"ok", b"<html></html>", b"{", b"\xff", b"[" * 100_000, b"[]", b"null", b'"text"', b"5"]
)
def test_an_answer_that_is_no_object(server: Server, call: str, body: bytes) -> None:
    server.says(body)
    with pytest.raises(ApiError, match="JSON"):
        CALLS[call](server.api)


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("models", {}),
        ("models", {"data": None}),
        ("models", {"data": 5}),
        ("models", {"data": [{}]}),
        ("models", {"data": ["a"]}),
        ("models", {"data": [{"id": "a", "max_model_len": "many"}]}),
        ("models", {"data": {"id": "a"}}),
        ("complete", {}),
        ("complete", completion(choices=[])),
        ("complete", completion(choices=None)),
        ("complete", completion(usage=None)),
        ("complete", completion(usage={})),
        ("complete", completion(choices=[{}])),
        ("complete", completion(usage={"prompt_tokens": "x", "completion_tokens": 1})),
        ("complete", completion(choices={"0": 1})),
        ("embed", {}),
        ("embed", {"data": []}),
        ("embed", {"data": [{}]}),
        ("embed", {"data": [{"embedding": None}]}),
        ("load", {}),
        ("load", {"loads": None}),
        ("load", {"loads": [1]}),
        ("load", {"loads": [{"num_running_reqs": "x"}]}),
        ("server_info", {"max_total_num_tokens": "x"}),
        ("server_info", {"max_req_input_len": [1]}),
    ],
)
def test_an_object_of_another_shape(server: Server, call: str, body: Any) -> None:
    server.says(body)
    with pytest.raises(ApiError) as caught:
        CALLS[call](server.api)
    assert str(caught.value).startswith("/")
    assert not isinstance(caught.value, ApiTimeout)


@pytest.mark.parametrize("call", [*CALLS, "health"])
def test_a_server_that_takes_too_long_is_not_a_dead_one(server: Server, call: str) -> None:
    server.delay_s = 8.0
    calls: dict[str, Callable[[SglangApi], object]] = {
        "models": lambda api: api.models(0.2),
        "complete": lambda api: api.complete("m", "p", 1, 0.2),
        "embed": lambda api: api.embed("m", "t", 0.2),
        "server_info": lambda api: api.server_info(0.2),
        "load": lambda api: api.load(0.2),
        "health": lambda api: api.health(0.2),
    }
    began = time.monotonic()
    with pytest.raises(ApiTimeout, match=r"did not answer within 0\.2 s"):
        calls[call](server.api)
    assert time.monotonic() - began < 6


def test_a_server_that_accepts_nothing_is_not_a_dead_one() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), pytest.raises(ApiTimeout):
            SglangApi("127.0.0.1", port).models(0.3)


def test_an_answer_that_stops_half_way() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _peer = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with pytest.raises(ApiTimeout):
        SglangApi("127.0.0.1", listener.getsockname()[1]).models(0.2)
    listener.close()


@pytest.mark.parametrize("call", [*CALLS, "health"])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="ssh"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x50", id="tls"),
        pytest.param(b"HTTP/1.1 abc\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", id="too many headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", id="a header too long"),
    ],
)
def test_what_does_not_speak_http(raw: Callable[[bytes], int], call: str, answer: bytes) -> None:
    api = SglangApi("127.0.0.1", raw(answer))
    with pytest.raises(ApiError) as caught:
        api.health(20.0) if call == "health" else CALLS[call](api)
    assert not isinstance(caught.value, ApiTimeout)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [b"200 OK", b"500 Internal Server Error"])
@pytest.mark.parametrize("head", [b"Content-Length: 1000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nff\r\n"])
def test_a_server_that_dies_while_it_answers(
    raw: Callable[[bytes], int], call: str, status: bytes, head: bytes
) -> None:
    api = SglangApi("127.0.0.1", raw(b"HTTP/1.1 " + status + b"\r\n" + head + b'{"data": '))
    with pytest.raises(ApiError):
        CALLS[call](api)


@pytest.mark.parametrize("call", [*CALLS, "health"])
def test_nobody_listens(call: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        api = SglangApi("127.0.0.1", closed.getsockname()[1], KEY)
        with pytest.raises(ApiError) as caught:
            api.health(20.0) if call == "health" else CALLS[call](api)
    assert "refused" in str(caught.value) and KEY not in str(caught.value)
    assert not isinstance(caught.value, ApiTimeout)


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(ApiError):
        SglangApi("nothing.invalid", 30000).models(5.0)


@pytest.mark.parametrize(("key", "header"), [("", None), (KEY, f"Bearer {KEY}")])
def test_the_key_goes_into_the_header_and_nowhere_else(server: Server, key: str, header: str | None) -> None:
    server.says(completion())
    SglangApi("127.0.0.1", server.server_port, key).complete("m", "p", 8, 20.0)
    _method, path, headers, body = server.seen[0]
    assert headers.get("Authorization") == header
    assert KEY not in path and KEY not in str(body)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "127.0.0.1", "localhost"])
def test_a_wildcard_is_asked_over_the_loopback_address(server: Server, host: str) -> None:
    server.says({"data": [{"id": "a"}]})
    assert SglangApi(host, server.server_port).models(20.0) == {"a": 0}


@pytest.mark.parametrize("host", ["::", "::1"])
def test_over_ipv6(host: str) -> None:
    class Server6(Server):
        address_family = socket.AF_INET6

    running = Server6(("::1", 0))
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    running.says({"data": [{"id": "a"}]})
    assert SglangApi(host, running.server_port).models(20.0) == {"a": 0}
    running.shutdown()
    running.server_close()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_no_proxy_comes_between(server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    server.says(b"")
    assert server.api.health(20.0) == 200


def test_a_timeout_is_an_error_of_the_api() -> None:
    assert issubclass(ApiTimeout, ApiError) and issubclass(sglang_api.ApiError, Exception)
