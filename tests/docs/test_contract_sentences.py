"""A page is told apart into its sentences, whether it is Markdown or plain text."""

from tests.docs.contract_sentences import sentences

MARKDOWN = """> ## Index
> Use this file. It lists pages.

# Rivers

> How water flows

Water flows down, e.g. `Po` and
others. It has:

* a **bed**: stones
* a *mouth*. `Deltas` are mouths.
  Some are wide.

## Table

| Name | Length |
| - | - |
| Po | 652 km. Shrinks. |

**Note:** see below.

```bash
ask "Po. Really?"

ask again
```
## Empty
"""

PLAIN = """Rivers

Water flows down. It has:

Table

Name\tLength
Po\t652 km

curl https://rivers.example \\
  -H "Key"

{
  "name": "Po"
}

Menu

Rivers
"""


def told(page):
    return [f"{found.section} {found.number}: {found.text}" for found in sentences(page)]


def test_markdown_by_sentence_bullet_row_and_example():
    assert told(MARKDOWN) == [
        "Rivers 1: How water flows",
        "Rivers 2: Water flows down, e.g. `Po` and others.",
        "Rivers 3: It has:",
        "Rivers 4: a **bed**: stones",
        "Rivers 5: a *mouth*.",
        "Rivers 6: `Deltas` are mouths.",
        "Rivers 7: Some are wide.",
        "Table 1: Po | 652 km.",
        "Table 2: Shrinks.",
        "Table 3: **Note:** see below.",
        'Table 4: ask "Po. Really?"\n\nask again',
    ]


def test_plain_text_by_block():
    assert told(PLAIN) == [
        "Rivers 1: Water flows down.",
        "Rivers 2: It has:",
        "Table 1: Po | 652 km",
        'Table 2: curl https://rivers.example \\\n  -H "Key"',
        'Table 3: {\n  "name": "Po"\n}',
    ]
