"""The chat agent before an endpoint that answers well, badly, late and never (D4.8, D4.9)."""

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import shapely

from ploti_server.adapters.chat import ChatJudge
from ploti_server.domain.chat import Chat
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.evidence import Evidence
from ploti_server.ports import Pair, Unanswered

KEY = "sk-loopback-0123456789"
DATASET = Dataset("ds", "Permits", SourceSpec("file", "x"))
COLUMNS = {"name": "string", "at": "geometry"}
POINT = shapely.to_wkb(shapely.points(-81.5, 28.25), byte_order=1)
PAIRS = tuple(
    Pair(f"rec_{n}-{n}-1", {"name": f"n{n}", "at": POINT, "own": 1}, {"name": f"n{n}", "at": None, "own": 2})
    for n in range(1, 6)
)
EVIDENCE = Evidence(COLUMNS, rows=40, held={"name": {"n1": 3}})


class Endpoint(ThreadingHTTPServer):
    """A chat endpoint on loopback that answers each request with what a function gives: status, headers, body."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked, self.headers = answer, [], []
        self.gone = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        self.server.headers.append((self.path, self.headers["authorization"]))
        status, headers, body = self.server.answer(asked, len(self.server.asked))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for block in body:
            self.wfile.write(block)
            self.wfile.flush()

    def log_message(self, *_):
        """Stay silent."""


@pytest.fixture
def serve():
    """Serve an answer; gives a judge that asks it, the endpoint and the pauses that the judge made."""
    servers = []

    def begin(answer, **settings):
        server = Endpoint(answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        pauses = []
        chat = Chat(**{"url": server.url, "model": "m-1", "key": KEY} | settings)
        return ChatJudge(chat, pause=pauses.append), server, pauses

    yield begin
    for server in servers:
        server.gone.set()
        server.shutdown()
        server.server_close()


def pairs_of(asked):
    return json.loads(asked["messages"][1]["content"])["pairs"]


def said(asked, **changed):
    """Say of each pair that it is the same, but for what is changed."""
    entries = [{"pair": p["pair"], "same": True, "confidence": 0.9, "why": "w"} | changed for p in pairs_of(asked)]
    return completion(json.dumps({"judgements": entries}))


def completion(text, status=200):
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
    return status, {"content-length": str(len(body))}, [body]


def refused(status, **headers):
    return status, {"content-length": str(len(KEY)), **headers}, [KEY.encode()]


def judge(agent, pairs=PAIRS):
    return agent.judge(DATASET, pairs, EVIDENCE)


def unanswered(agent, pairs=PAIRS):
    with pytest.raises(Unanswered) as trouble:
        judge(agent, pairs)
    return str(trouble.value), [j.pair_id[4] for j in trouble.value.answered]


def test_pairs_are_asked_in_batches_and_come_back_in_order(serve):
    agent, server, _ = serve(lambda asked, _: said(asked), pairs_per_call=2)
    judged = judge(agent)
    assert [(j.pair_id, j.same, j.confidence, j.explanation) for j in judged] == [
        (pair.pair_id, True, 0.9, "w") for pair in PAIRS
    ]
    assert sorted(len(pairs_of(asked)) for asked in server.asked) == [1, 2, 2]
    assert set(server.headers) == {("/v1/chat/completions", f"Bearer {KEY}")}
    assert {(asked["model"], asked["temperature"]) for asked in server.asked} == {("m-1", 0)}


def test_the_model_sees_compared_columns_and_how_common_shared_values_are(serve):
    agent, server, _ = serve(lambda asked, _: said(asked), key=None)
    judge(agent, PAIRS[:1])
    assert pairs_of(server.asked[0]) == [
        {
            "pair": 1,
            "before": {"name": "n1", "at": "Point -81.500000 28.250000"},
            "now": {"name": "n1", "at": None},
            "recordsWithSameValue": {"name": 3},
        }
    ]
    assert server.headers[0][1] is None


def test_what_is_not_answered_soundly_is_asked_again_once_and_alone(serve):
    def answer(asked, count):
        entries = [{"pair": p["pair"], "same": True, "confidence": 0.9 + count} for p in pairs_of(asked)]
        entries[0]["confidence"] = 0.9
        return completion(json.dumps({"judgements": entries}))

    agent, server, _ = serve(answer)
    why, judged = unanswered(agent, PAIRS[:3])
    assert why == "1 of 3 pairs without a sound answer: `same` or `confidence` is not sound"
    assert judged == ["1", "2"]
    assert [len(pairs_of(asked)) for asked in server.asked] == [3, 2]


def test_of_half_a_batch_that_was_answered_only_the_rest_is_asked_again(serve):
    def answer(asked, count):
        entries = [{"pair": p["pair"], "same": True, "confidence": 0.9, "why": str(count)} for p in pairs_of(asked)]
        return completion(json.dumps({"judgements": entries[:2] if count == 1 else entries}))

    agent, server, _ = serve(answer)
    assert [(j.pair_id[4], j.explanation) for j in judge(agent, PAIRS[:4])] == list(zip("1234", "1122", strict=True))
    assert [[p["before"]["name"] for p in pairs_of(asked)] for asked in server.asked] == [
        ["n1", "n2", "n3", "n4"], ["n3", "n4"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "why", "calls"),
    [
        (completion("I cannot help with that."), "no JSON object", 2),
        (completion(None), "no JSON object", 2),
        (completion('{"judgements": [{"pair": 1, "same": true, "confidence": 0.9}, {"pa'), "no JSON object", 2),
        ((200, {}, [b"<html>login</html>"]), "no chat completion: look at chat_url", 1),
        ((200, {}, [b'{"choices": []}']), "no chat completion", 1),
        (refused(401), "answered 401: look at chat_key", 1),
        (refused(404), "answered 404: look at chat_url and chat_model", 1),
        (refused(302, location="http://127.0.0.1:1/"), "answered 302", 1),
        (refused(500), "answered 500", 3),
        (refused(429), "answered 429", 3),
        ((200, {}, [b"x" * (1 << 20)] * 5), "does not end", 1),
        ((200, {"content-length": "100"}, [b"{"]), "cannot be reached", 1),
    ],
)
def test_an_endpoint_that_answers_badly_leaves_the_pairs_open_and_the_key_shows_nowhere(
    serve, caplog, answer, why, calls
):
    caplog.set_level(logging.DEBUG)
    agent, server, _ = serve(lambda *_: answer)
    told, judged = unanswered(agent)
    assert why in told
    assert (judged, len(server.asked)) == ([], calls)
    assert KEY not in told + caplog.text + repr(agent._chat)


def test_a_busy_endpoint_is_asked_again_after_the_time_that_it_names(serve):
    answers = {1: refused(429, **{"retry-after": "7"}), 2: refused(503, **{"retry-after": "9999"})}
    agent, _, pauses = serve(lambda asked, count: answers.get(count) or said(asked))
    assert len(judge(agent)) == 5
    assert pauses == [7.0, 20.0]


def test_a_model_that_takes_no_temperature_is_asked_without(serve):
    agent, server, pauses = serve(lambda asked, _: refused(400) if "temperature" in asked else said(asked))
    assert len(judge(agent)) == 5
    assert (len(server.asked), pauses) == (2, [])


def test_batches_that_were_answered_before_it_broke_down_are_kept(serve):
    agent, server, _ = serve(
        lambda asked, _: refused(401) if pairs_of(asked)[0]["before"]["name"] == "n5" else said(asked),
        pairs_per_call=1,
    )
    why, judged = unanswered(agent)
    assert why == "the chat endpoint answered 401: look at chat_key"
    assert set(judged) <= {"1", "2", "3", "4"}
    assert len(server.asked) == len(judged) + 1


@pytest.mark.parametrize("slow", ["never answers", "drips"])
def test_an_endpoint_that_is_late_is_left_after_the_seconds_of_the_settings(serve, slow):
    def drip(server):
        while not server.gone.wait(0.05):
            yield b" "

    def answer(*_):
        if slow == "never answers":
            server.gone.wait(5)
        return 200, {}, drip(server)

    agent, server, _ = serve(answer, seconds=1)
    assert unanswered(agent) == ("the chat endpoint gave no whole answer within 1 seconds", [])


def test_an_endpoint_that_is_not_there_or_not_set():
    assert unanswered(ChatJudge(Chat("http://127.0.0.1:9", "m")))[0] == (
        "the chat endpoint cannot be reached: ConnectError"
    )
    assert unanswered(ChatJudge(Chat()))[0].startswith("no chat endpoint is set: give chat_url and chat_model")
