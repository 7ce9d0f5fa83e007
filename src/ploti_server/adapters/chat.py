"""The chat agent: asks any OpenAI-compatible chat endpoint about pairs, in batches, and checks what it says (D4.8).

Only sound answers count: about a pair that was asked, once, with a confidence of 0 to 1. A batch with others is asked
again once, about what is missing; then what is left waits for the next try of the ask (D4.9). The key goes into one
header and nowhere else: no message holds it, nor what an endpoint writes beside its status.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ploti_server.domain.chat import Chat, SoundAnswers, chat_messages, read_answers
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence
from ploti_server.ports import Judgement, Pair, Unanswered
from ploti_server.rows.shown import shown

if TYPE_CHECKING:
    import httpx2

AT_ONCE: Final = 4
"""Batches that are asked side by side."""

TRIES: Final = 3
"""How often one batch is sent where the endpoint is busy or broken."""

BUSY: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 20.0
ANSWER_BYTES_MOST: Final = 4 << 20


class _Trouble(Exception):
    """What the endpoint did instead of answering."""


@dataclass(frozen=True)
class _Batch:
    """What became of one batch."""

    judgements: tuple[Judgement, ...]
    trouble: str | None = None


class ChatJudge:
    """`MatchingAgent` over a chat endpoint; `pause` waits between tries."""

    def __init__(self, chat: Chat, *, pause: Callable[[float], object] = time.sleep) -> None:
        self._chat, self._pause = chat, pause

    def judges(self, dataset: Dataset) -> bool:  # noqa: ARG002  # the port's
        """Tell that every dataset's pairs are judged."""
        return True

    def judge(self, dataset: Dataset, pairs: Sequence[Pair], evidence: Evidence) -> tuple[Judgement, ...] | None:
        """Ask about all pairs; raises `Unanswered` with what was judged where some are left."""
        if self._chat.url is None or self._chat.model is None:
            raise Unanswered("no chat endpoint is set: give chat_url and chat_model, see `ploti-server settings`")
        size = self._chat.pairs_per_call
        batches = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        halted = threading.Event()
        with self._client() as client, ThreadPoolExecutor(AT_ONCE) as pool:
            done = list(pool.map(lambda batch: self._judged(client, dataset, batch, evidence, halted), batches))
        judgements = tuple(judgement for batch in done for judgement in batch.judgements)
        troubles = [batch.trouble for batch in done if batch.trouble is not None]
        if troubles:
            raise Unanswered(troubles[0], judgements)
        return judgements

    def _client(self) -> "httpx2.Client":
        import httpx2

        headers = {"Authorization": f"Bearer {self._chat.key}"} if self._chat.key else {}
        return httpx2.Client(headers=headers, timeout=self._chat.seconds, follow_redirects=False)

    def _judged(
        self,
        client: "httpx2.Client",
        dataset: Dataset,
        batch: Sequence[Pair],
        evidence: Evidence,
        halted: threading.Event,
    ) -> _Batch:
        """Ask about one batch, and once more about what was not answered soundly."""
        found = SoundAnswers({}, None)
        for _ in range(2):
            left = [pair for pair in batch if pair.pair_id not in found.judged]
            if not left or halted.is_set():
                break
            messages = chat_messages(dataset, [_told(pair, evidence) for pair in left], evidence.rows)
            try:
                answer = self._answer(client, messages)
            except _Trouble as trouble:
                halted.set()
                return _Batch(_judgements(batch, found), str(trouble))
            found = found.with_more(read_answers(answer, [pair.pair_id for pair in left]))
        missing = len(batch) - len(found.judged)
        why = found.trouble or "the endpoint broke down for others"
        told = f"{missing} of {len(batch)} pairs without a sound answer: {why}" if missing else None
        return _Batch(_judgements(batch, found), told)

    def _answer(self, client: "httpx2.Client", messages: Sequence[Mapping[str, str]]) -> str:
        """Give the text that the endpoint answers; raises `_Trouble`."""
        body: dict[str, Any] = {"model": self._chat.model, "messages": list(messages), "temperature": 0}
        for attempt in range(1, TRIES + 1):
            status, wait, content = self._post(client, body)
            if status == 200:
                return _text_of(content)
            if status in (400, 422) and body.pop("temperature", None) is not None:
                continue  # some models take no temperature
            if status not in BUSY or attempt == TRIES:
                break
            self._pause(min(wait or PAUSE_SECONDS * attempt, LONGEST_PAUSE_SECONDS))
        hint = {401: ": look at chat_key", 403: ": look at chat_key", 404: ": look at chat_url and chat_model"}
        raise _Trouble(f"the chat endpoint answered {status}{hint.get(status, '')}")

    def _post(self, client: "httpx2.Client", body: Mapping[str, Any]) -> tuple[int, float | None, bytes]:
        """Send one request; gives status, seconds to wait and body, within the seconds of the settings in all."""
        import httpx2

        ends = time.monotonic() + self._chat.seconds
        content = b""
        try:
            with client.stream("POST", f"{self._chat.url}/chat/completions", json=body) as response:
                for block in response.iter_bytes():
                    content += block
                    if len(content) > ANSWER_BYTES_MOST:
                        raise _Trouble("the chat endpoint's answer does not end")
                    if time.monotonic() > ends:
                        raise httpx2.ReadTimeout("too slow")
                return response.status_code, _seconds(response.headers.get("retry-after")), content
        except httpx2.TimeoutException as error:
            raise _Trouble(f"the chat endpoint gave no whole answer within {self._chat.seconds} seconds") from error
        except httpx2.HTTPError as error:
            raise _Trouble(f"the chat endpoint cannot be reached: {type(error).__name__}") from error


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


def _text_of(content: bytes) -> str:
    try:
        text = json.loads(content)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as error:
        raise _Trouble("the chat endpoint's answer is no chat completion: look at chat_url") from error
    return text if isinstance(text, str) else ""


def _told(pair: Pair, evidence: Evidence) -> dict[str, Any]:
    """Give what is told of a pair: both records' compared columns, and how common the values are that they share."""
    sides = [shown({name: values[name] for name in evidence.columns}) for values in (pair.old, pair.new)]
    alike = {
        name: evidence.held.get(name, {}).get(pair.old[name], 0)
        for name in evidence.columns
        if pair.old[name] is not None and pair.old[name] == pair.new[name]
    }
    return {"before": sides[0], "now": sides[1], "recordsWithSameValue": alike}


def _judgements(batch: Sequence[Pair], found: SoundAnswers) -> tuple[Judgement, ...]:
    return tuple(
        Judgement(pair.pair_id, said.same, said.confidence, said.why)
        for pair in batch
        if (said := found.judged.get(pair.pair_id)) is not None
    )
