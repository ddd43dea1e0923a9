"""Keeps JSON parseable when the scrubber takes a number out of it."""

import json
import re

_STRING_OR_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\deE]*(<[A-Z]+(?:_[A-Z]+)*_\d+>)[-+.\deE]*')


def parses(text: str) -> bool:
    """Whether `text` is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def quoted(scrubbed: str) -> str:
    """Return scrubbed JSON with every placeholder that stands outside strings, in place of a number, as a string."""
    return _STRING_OR_BARE.sub(lambda match: f'"{match[1]}"' if match[1] else match[0], scrubbed)
