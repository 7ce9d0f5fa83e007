"""A YAML mapping whose fields are taken one by one, noting every problem with its place in the file."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

TEXT_LONGEST: Final = 2_000
Allowed = Callable[[str], str | None]
"""Tells what is wrong with a text, None where it is fine."""


class _OneKeyLoader(yaml.SafeLoader):
    """Safe YAML in which a mapping cannot say one key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"'{key_node.value}' is given twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """Read YAML; raises `yaml.YAMLError` where it is malformed, nests too deeply or a mapping says one key twice."""
    try:
        return yaml.load(text, _OneKeyLoader)  # noqa: S506 - derives from SafeLoader
    except RecursionError:
        raise yaml.YAMLError("it nests too deeply") from None


def yaml_problem(broken: yaml.YAMLError) -> str:
    """Say in one line what is wrong with a text that is no YAML, and where."""
    if not isinstance(broken, yaml.MarkedYAMLError) or broken.problem_mark is None:
        return " ".join(str(broken).split())
    told = ", ".join(part for part in (broken.context, broken.problem) if part)
    return f"{told} (line {broken.problem_mark.line + 1})"


def lines_of(text: str) -> dict[str, int]:
    """Give the line of every field of a YAML text by its path, like `datasets[0].source.kind`, counted from 1."""
    lines: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[yaml.Node | None, str]] = [(yaml.compose(text, _OneKeyLoader), "")]
    while waiting:
        node, path = waiting.pop()
        if id(node) in seen:
            continue  # an alias, whose fields stand where its anchor is
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = f"{path}.{key.value}" if path else str(key.value)
                lines[name] = key.start_mark.line + 1
                waiting.append((value, name))
        elif isinstance(node, yaml.SequenceNode):
            for place, item in enumerate(node.value):
                lines[f"{path}[{place}]"] = item.start_mark.line + 1
                waiting.append((item, f"{path}[{place}]"))
    return lines


def with_line(problem: str, lines: dict[str, int]) -> str:
    """Put the line of the nearest field of the file behind a problem that begins with a field's path."""
    paths = [
        path for path in lines if problem.startswith(path) and problem[len(path) : len(path) + 1] in (":", ".", "[")
    ]
    return f"{problem} (line {lines[max(paths, key=len)]})" if paths else problem


_HALF: Final = re.compile("[\ud800-\udfff]")


@dataclass
class Fields:
    """One mapping of the file, at `path`; `problems` is shared by all of them."""

    raw: Any
    path: str
    problems: list[str]
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.raw, dict):
            self.problems.append(f"{self.path or 'the file'}: give fields with values, not {shown(self.raw)}")
            self.raw = None

    def note(self, name: str, problem: str) -> None:
        """Note a problem of a field."""
        self.problems.append(f"{self.path}.{name}: {problem}" if self.path else f"{name}: {problem}")

    def take(self, name: str) -> Any:
        """Give a field as the file has it, None where it is left out."""
        self.taken.add(name)
        return None if self.raw is None else self.raw.get(name)

    def close(self) -> None:
        """Note every field that nobody took."""
        for name in self.raw or ():
            if name not in self.taken:
                self.note(str(name), f"is not known here; allowed are {', '.join(sorted(self.taken))}")

    def text(self, name: str, required: bool = False, allowed: Allowed | None = None) -> str | None:
        """Take a text, None where it is left out or wrong."""
        value = self.take(name)
        if value is None:
            if required and self.raw is not None:
                self.note(name, "is missing")
            return None
        return value if self._is_text(name, value, allowed) else None

    def _is_text(self, name: str, value: Any, allowed: Allowed | None = None) -> bool:
        if not isinstance(value, str):
            self.note(name, f"is {shown(value)}, not a text: put it in quotes if it is meant as one")
            return False
        wrong = problem_of_text(value) or (allowed(value) if allowed else None)
        if wrong:
            self.note(name, wrong)
        return not wrong

    def items(self, name: str) -> list[Any]:
        """Take a list, empty where it is left out or wrong."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.note(name, f"is {shown(value)}, not a list")
            return []
        return value

    def texts(self, name: str, allowed: Allowed | None = None) -> tuple[str, ...]:
        """Take a list of texts, each at most once."""
        values = self.items(name)
        fine = [value for i, value in enumerate(values) if self._is_text(f"{name}[{i}]", value, allowed)]
        for value in dict.fromkeys(value for value in fine if fine.count(value) > 1):
            self.note(name, f"names '{value}' twice")
        return tuple(fine)

    def flag(self, name: str, default: bool) -> bool:
        """Take true or false."""
        value = self.take(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.note(name, f"is {shown(value)}; allowed are true and false")
        return default

    def number(self, name: str, default: Any, least: float, most: float, whole: bool) -> Any:
        """Take a number within limits, `default` where it is left out or wrong."""
        value = self.take(name)
        if value is None:
            return default
        kinds = (int,) if whole else (int, float)
        if isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.note(name, f"is {shown(value)}; allowed is a {'whole ' if whole else ''}number from {least} to {most}")
        return default

    def part(self, name: str) -> "Fields | None":
        """Take a mapping inside this one, None where it is left out."""
        value = self.take(name)
        return None if value is None else Fields(value, f"{self.path}.{name}" if self.path else name, self.problems)


def problem_of_text(value: str) -> str | None:
    """Tell why a text is none that can be kept."""
    if len(value) > TEXT_LONGEST:
        return f"is longer than {TEXT_LONGEST} characters"
    if _HALF.search(value):
        return "has half of a character (a lone surrogate)"
    return "is empty" if not value.strip() else "has a NUL character" if "\0" in value else None


def shown(value: Any) -> str:
    """Quote a value of the file for a message."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."
