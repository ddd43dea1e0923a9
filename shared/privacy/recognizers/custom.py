"""Recognizers of your own, from YAML in Presidio's shape; patterns are RE2, matched on the folded view.

    recognizers:
      - name: Employee number
        supported_entity: EMPLOYEE_NO
        patterns:
          - {name: with prefix, regex: "EMP-[0-9]{6}", score: 0.8}
          - {name: bare, regex: "[0-9]{6}", score: 0.2}
        context: [employee, 工号]
        validator: luhn

What scores below 0.5 needs one of the context words within 40 characters before or 20 behind, as with Presidio.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import re2
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from stdnum import luhn

from shared.errors import ConfigurationError
from shared.privacy.policy import Entity
from shared.privacy.recognizers.recognizer import LEFT, RIGHT, Candidate, Recognizer
from shared.privacy.words import Words

_SURE = 0.5
_BEFORE, _BEHIND = 40, 20
_FIELD = "privacy_recognizers"
_Text = Annotated[str, Field(min_length=1, max_length=1000)]


def _luhn(value: str) -> bool:
    return bool(luhn.is_valid("".join(filter(str.isdigit, value))))


def _anything(_value: str) -> bool:
    return True


VALIDATORS: Mapping[str, Callable[[str], bool]] = {"": _anything, "luhn": _luhn}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Pattern(_Part):
    name: _Text
    regex: _Text
    score: float = Field(ge=0, le=1)


class _Custom(_Part):
    name: _Text
    supported_entity: Entity
    patterns: tuple[_Pattern, ...] = Field(min_length=1, max_length=100)
    context: tuple[_Text, ...] = ()
    validator: Literal["luhn"] | None = None

    def recognizers(self, path: Path) -> list[Recognizer]:
        return [self._recognizer(pattern, path) for pattern in self.patterns]

    def _recognizer(self, pattern: _Pattern, path: Path) -> Recognizer:
        words = Words.of(" ".join(word.lower().replace(" ", "_") for word in self.context)) if self.context else None
        valid = VALIDATORS[self.validator or ""]

        def check(candidate: Candidate) -> Candidate | None:
            near = words is not None and candidate.near(words, before=_BEFORE, after=_BEHIND)
            return candidate if (pattern.score >= _SURE or near) and valid(candidate.alphanumerics) else None

        try:
            return Recognizer.of(self.supported_entity, f"(?i:{LEFT}({pattern.regex}){RIGHT})", check)
        except re2.error as error:
            raise ConfigurationError(
                f"{path}: pattern {pattern.name!r} of recognizer {self.name!r} is not RE2: {error}; look-around and"
                " back-references need time without bound and are refused",
                field=_FIELD,
            ) from None


class _File(_Part):
    recognizers: tuple[_Custom, ...]


def custom_recognizers(path: Path | None) -> tuple[Recognizer, ...]:
    """Return the recognizers in the YAML file `path`; none without one.

    Raises:
        ConfigurationError: it cannot be read, a field is wrong, or a pattern is not RE2; names which.
    """
    if path is None:
        return ()
    try:
        found = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", field=_FIELD) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigurationError(f"{path} is no YAML in UTF-8: correct it", field=_FIELD) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{path}: {where or 'the file'}: {first['msg']}", field=_FIELD) from None
    return tuple(recognizer for custom in found.recognizers for recognizer in custom.recognizers(path))
