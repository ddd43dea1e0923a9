"""Mixed jobs as text, for the way through the API; and the same jobs as ids, for the engine alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shared.tokenizer import ChatTokenizer

TEXT = Path(__file__).parents[1] / "tests" / "data" / "perplexity_text.txt"


@dataclass(frozen=True, slots=True)
class Document:
    """A prompt and the number of tokens to generate, end-of-text ignored."""

    prompt: str
    max_tokens: int

    def body(self) -> dict[str, Any]:
        """Return what is posted to /v1/jobs."""
        return {"prompt": self.prompt, "sampling": {"max_tokens": self.max_tokens, "ignore_eos": True}}

    def token_job(self, tokenizer: ChatTokenizer) -> tuple[list[int], int]:
        """Return what a worker makes of it: ids with the chat template, and `max_tokens`."""
        return tokenizer.encode_chat([{"role": "user", "content": self.prompt}]), self.max_tokens


def mixed_documents(tokenizer: ChatTokenizer, count: int, seed: int = 7) -> list[Document]:
    """Return documents of 30-600 tokens and outputs of 16-128: stretches of a text, sizes as in `mixed_jobs`."""
    random = np.random.default_rng(seed)
    ids = tokenizer.encode_text(TEXT.read_text(encoding="utf-8"))
    text = ids * 4
    documents = []
    for _ in range(count):
        length, new = int(random.integers(30, 601)), int(random.integers(16, 129))
        start = int(random.integers(0, len(ids)))
        documents.append(Document(tokenizer.decode(text[start : start + length]).strip(), new))
    return documents
