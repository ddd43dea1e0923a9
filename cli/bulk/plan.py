"""What a run asks of every document, and the keys that make it safe to repeat."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cli.bulk.document import Document

RUN_DIGITS = 16
DOCUMENT_DIGITS = 32


@dataclass(frozen=True)
class Plan:
    """Instruction, model and sampling of one run; `model` None means the fleet's default.

    The same plan under another `name` runs the same documents anew.
    """

    instruction: str
    model: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    @cached_property
    def digest(self) -> str:
        """Names the plan: results of different plans never mix in one file."""
        asked = [self.instruction, self.model, dict(sorted(self.sampling.items())), self.name]
        return _digest(asked)[:RUN_DIGITS]

    def key_of(self, document: Document) -> str:
        """Name one document under this plan by name and content, wherever in the input it stands."""
        return f"{self.digest}-{_digest([document.name, document.text])[:DOCUMENT_DIGITS]}"

    def body_of(self, document: Document) -> dict[str, Any]:
        """Return the submission of one document: instruction first, so that all documents share a cached prefix."""
        content = f"{self.instruction}\n\n{document.text}"
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self.model:
            body["model"] = self.model
        if self.sampling:
            body["sampling"] = dict(self.sampling)
        return body


def _digest(value: object) -> str:
    # ASCII escapes keep unpaired surrogates of faulty documents hashable.
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
