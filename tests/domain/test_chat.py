"""What a chat model is told, and which of its answers count, a row for each way to be wrong (D4.8)."""

import json

import pytest

from ploti_server.domain.chat import LONGEST_WHY, TASK, Said, chat_messages, read_answers
from ploti_server.domain.datasets import Dataset, SourceSpec

PAIRS = ["a", "b"]
GOOD = {"pair": 1, "same": True, "confidence": 0.9, "why": "one street"}
OTHER = {"pair": 2, "same": False, "confidence": 1, "why": None}


def told(*entries):
    return json.dumps({"judgements": entries})


@pytest.mark.parametrize(
    "text",
    [
        told(GOOD, OTHER),
        told(OTHER, GOOD),
        f"```json\n{told(GOOD, OTHER)}\n```",
        f"Let me think {{about}} it. {{}} So: {told(GOOD, OTHER)} Done.",
        '{"notes": [], "x": ' + "[" * 9000 + "}" + told(GOOD, OTHER),
    ],
    ids=["plain", "any order", "fenced", "words around it", "broken JSON before it"],
)
def test_sound_answers_are_found(text):
    found = read_answers(text, PAIRS)
    assert found.judged == {"a": Said(True, 0.9, "one street"), "b": Said(False, 1.0, None)}
    assert found.trouble is None


@pytest.mark.parametrize(
    ("text", "judged", "trouble"),
    [
        ("", [], "no JSON"),
        ("they are all the same", [], "no JSON"),
        ('{"judgements": "all the same"}', [], "no JSON"),
        ('[{"pair": 1}]', [], "no JSON"),
        (told(GOOD), ["a"], "left out"),
        (told(GOOD, OTHER | {"pair": 3}), ["a"], "not asked about"),
        (told(GOOD, OTHER | {"pair": 0}), ["a"], "not asked about"),
        (told(GOOD, OTHER | {"pair": "2"}), ["a"], "not asked about"),
        (told(GOOD, OTHER | {"pair": True}), ["a"], "not asked about"),
        (told(GOOD, "no"), ["a"], "not asked about"),
        (told(GOOD, OTHER | {"confidence": 1.01}), ["a"], "not sound"),
        (told(GOOD, OTHER | {"confidence": -0.1}), ["a"], "not sound"),
        (told(GOOD, OTHER | {"confidence": float("nan")}), ["a"], "not sound"),
        (told(GOOD, OTHER | {"confidence": "high"}), ["a"], "not sound"),
        (told(GOOD, OTHER | {"confidence": True}), ["a"], "not sound"),
        (told(GOOD, OTHER | {"same": "yes"}), ["a"], "not sound"),
        (told(GOOD, OTHER, OTHER), ["a"], "twice"),
        (told(GOOD, OTHER, OTHER | {"same": True}), ["a"], "twice"),
    ],
)
def test_what_is_not_sound_is_no_answer(text, judged, trouble):
    found = read_answers(text, PAIRS)
    assert list(found.judged) == judged
    assert trouble in found.trouble


def test_an_answer_about_more_pairs_than_were_asked_is_told_but_the_sound_ones_count():
    found = read_answers(told(GOOD, OTHER, GOOD | {"pair": 9}), PAIRS)
    assert (list(found.judged), found.trouble) == (PAIRS, "it names pairs that were not asked about")


def test_a_long_reason_is_cut():
    assert len(read_answers(told(GOOD | {"why": "x" * 9000}), PAIRS).judged["a"].why) == LONGEST_WHY


def test_the_model_is_told_the_rules_and_the_pairs_by_number():
    dataset = Dataset("ds", "Permits", SourceSpec("file", "x"))
    rules, question = chat_messages(dataset, [{"before": {"a": "Ö"}}, {"before": {}}], 7)
    assert rules == {"role": "system", "content": TASK}
    asked = json.loads(question["content"])
    assert (asked["dataSet"], asked["recordsInVersionBefore"]) == ("Permits", 7)
    assert asked["pairs"] == [{"pair": 1, "before": {"a": "Ö"}}, {"pair": 2, "before": {}}]
