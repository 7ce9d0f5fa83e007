"""States of a source's past (D13.5)."""

import os
import subprocess
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from ploti_server.pipeline.check import CheckRefused
from ploti_server.pipeline.history import history_states


def day(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def given(folder, last=None):
    return [(state.file.name, state.fetched_at) for state in history_states(str(folder), last, folder)]


@pytest.fixture
def folder(tmp_path):
    def fill(*names):
        for name in names:
            (tmp_path / name).write_text(name)
        return tmp_path

    return fill


def test_a_folder_gives_the_files_whose_names_begin_with_digits_in_name_order(folder):
    assert [name for name, _ in given(folder("010-b.csv", "002-a.csv", "README.md", "states.json"))] == [
        "002-a.csv",
        "010-b.csv",
    ]


def test_a_state_is_read_at_the_date_in_its_name(folder):
    assert given(folder("001-2024-05-31.csv")) == [("001-2024-05-31.csv", day("2024-05-31"))]


def test_without_a_date_a_state_is_read_a_day_after_the_last_check(folder):
    assert given(folder("001-v1.csv", "002-v2.csv"), day("2024-01-01")) == [
        ("001-v1.csv", day("2024-01-02")),
        ("002-v2.csv", day("2024-01-03")),
    ]


def test_without_a_date_and_a_check_states_begin_in_2000(folder):
    assert given(folder("001-v1.1.31.json", "002-v1.csv")) == [
        ("001-v1.1.31.json", day("2000-01-01")),
        ("002-v1.csv", day("2000-01-02")),
    ]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["001-2024-05-31.csv", "002-2024-05-30.csv"], "002-2024-05-30.csv .* before 001-2024-05-31.csv"),
        (["1-2024-01-01.csv", "10-2024-02-01.csv", "2-2024-01-15.csv"], "2-2024-01-15.csv .* before 10-2024-02-01.csv"),
        (["001-2024-05-31.csv", "002.csv", "003-2024-05-31.csv"], "003-2024-05-31.csv .* before 002.csv"),
        (["001-2024-05-31.csv", "002-2024-02-30.csv"], "002-2024-02-30.csv names no day"),
    ],
)
def test_a_folder_whose_names_disagree_with_their_dates_is_refused_before_its_first_state(folder, names, told):
    with pytest.raises(CheckRefused, match=told):
        next(history_states(str(folder(*names)), None, folder()))


def test_a_date_in_the_future_is_refused_before_the_first_state(folder):
    """As `check --at` refuses it: no later state could be given any more."""
    names = folder("001-2024-05-31.csv", "002-2999-01-01.csv")
    with pytest.raises(CheckRefused, match=r"002-2999-01-01.csv .* in the future"):
        next(history_states(str(names), None, names, now=day("2024-06-01")))


def test_states_without_a_date_are_never_read_in_the_future(folder):
    names = folder("001.csv", "002.csv", "003.csv")
    states = history_states(str(names), day("2024-05-30"), names, now=day("2024-06-01"))
    assert [state.fetched_at for state in states] == [day("2024-05-31"), day("2024-06-01"), day("2024-06-01")]


def test_states_of_one_day_follow_each_other(folder):
    assert [at for _, at in given(folder("001-2024-05-31.csv", "002-2024-05-31.csv"))] == [day("2024-05-31")] * 2


@pytest.mark.parametrize("name", ["README.md", "001-2024-13-45.csv"])
def test_a_folder_without_a_usable_state_is_refused(folder, name):
    with pytest.raises(CheckRefused):
        given(folder(name))


def test_a_place_that_is_no_folder_and_no_repository_is_refused(tmp_path):
    with pytest.raises(CheckRefused, match="neither a folder"):
        list(history_states(str(tmp_path / "nothing"), None, tmp_path))


@pytest.fixture
def repository(tmp_path):
    """A git repository in which `commit` puts a file's content, or its removal, at a time."""
    folder = tmp_path / "repo"
    folder.mkdir()

    def git(*arguments, when="2024-01-01T00:00:00+00:00"):
        who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a"}
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_COMMITTER_EMAIL": "a@b.c"}
        subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, env=os.environ | who | dates)

    def commit(content, when, name="data.csv"):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        git("add", "-A")
        git("commit", "-m", "state", when=when)

    git("init")
    return SimpleNamespace(folder=folder, commit=commit)


@pytest.fixture
def past(repository, tmp_path):
    """Give content and time of each state of a path in the repository."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def read(path, below=""):
        states = history_states(f"{repository.folder / below}:{path}", None, scratch)
        return [(state.file.read_text(), state.fetched_at) for state in states]

    return read


def test_a_git_history_gives_each_commit_of_the_file_at_its_commit_time(repository, past):
    for number, content in enumerate(["a\n1\n", "a\n2\n", None, "a\n3\n"], 1):
        repository.commit(content, f"2024-01-0{number}T12:00:00+02:00")
    assert [content for content, _ in past("data.csv")] == ["a\n1\n", "a\n2\n", "a\n3\n"]
    assert [when for _, when in past("data.csv")] == [datetime(2024, 1, day_, 10, tzinfo=UTC) for day_ in (1, 2, 4)]
    with pytest.raises(CheckRefused, match="no commits"):
        past("other.csv")


def test_a_commit_whose_time_goes_back_was_read_when_the_one_before_it_was(repository, past):
    for content, number in (("a\n1\n", 5), ("a\n2\n", 3), ("a\n3\n", 6)):
        repository.commit(content, f"2024-01-0{number}T00:00:00+00:00")
    assert [when.day for _, when in past("data.csv")] == [5, 5, 6]


def test_a_commit_of_a_clock_ahead_was_read_now(repository, tmp_path):
    repository.commit("a\n1\n", "2099-01-01T00:00:00+00:00")
    (only,) = history_states(f"{repository.folder}:data.csv", None, tmp_path, now=day("2024-06-01"))
    assert only.fetched_at == day("2024-06-01")


def test_a_folder_of_a_repository_is_no_state(repository, past):
    repository.commit("a\n1\n", "2024-01-01T00:00:00+00:00", "states/data.csv")
    with pytest.raises(CheckRefused, match="states is no file in the history of"):
        past("states")


def test_a_git_history_may_be_named_from_a_folder_inside_the_repository(repository, past):
    repository.commit("a\n1\n", "2024-01-01T00:00:00+00:00", "states/data.csv")
    assert past("data.csv", below="states") == [("a\n1\n", day("2024-01-01"))]
