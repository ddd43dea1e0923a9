"""Whether a prompt and its output fit a model's context, found before anything is queued."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.adapters import adapter_file
from shared.errors import InvalidInputError, PromptTooLongError
from shared.grammars import check_constraint
from shared.model_registry import ModelVersion, resolve, resolve_name
from shared.sampling import SamplingParams, check_token_ids
from shared.settings import Settings
from shared.tokenizer import ChatTokenizer

MAX_TOKENIZERS = 4  # about 60 MB each


class TokenizerCache:
    """The tokenizers of the model versions used last. Thread safe."""

    def __init__(self) -> None:
        """Start empty."""
        self._loaded: OrderedDict[Path, ChatTokenizer] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, model: ModelVersion) -> ChatTokenizer:
        """Return the version's tokenizer, loading it once."""
        with self._lock:
            tokenizer = self._loaded.get(model.path) or ChatTokenizer.from_directory(model.path)
            self._loaded[model.path] = tokenizer
            self._loaded.move_to_end(model.path)
            if len(self._loaded) > MAX_TOKENIZERS:
                self._loaded.popitem(last=False)
            return tokenizer


class PromptBudget:
    """Counts prompts with the model's own tokenizer and fits `max_tokens` into what is left."""

    def __init__(self, settings: Settings) -> None:
        """Read models from the settings' `model_dir`, on demand."""
        self._settings = settings
        self._tokenizers = TokenizerCache()

    def warm(self) -> None:
        """Load the default model's tokenizer, so that the first submission need not."""
        self._tokenizers.of(self.resolve(None))

    def resolve(self, name: str | None) -> ModelVersion:
        """Return the active version of the named model, or of the default one.

        Raises:
            ModelNotFoundError: it is not installed; lists those that are.
        """
        if name is None:
            return resolve(self._settings.model, self._settings.model_dir)
        return resolve_name(name, self._settings.model_dir)

    def fit(
        self, model: ModelVersion, messages: Sequence[Mapping[str, str]], sampling: SamplingParams
    ) -> SamplingParams:
        """Return `sampling` with a `max_tokens` that fits: as asked for, or the default shrunk to the room left.

        Raises:
            PromptTooLongError: prompt tokens plus `max_tokens` exceed the context.
            InvalidInputError: the chat template refuses the messages, `min_tokens` is above `max_tokens`, a token id is
                beyond the vocabulary, the model has no such adapter, or the output cannot be constrained as asked for.
        """
        check_token_ids(sampling, model.manifest.vocab_size)
        if sampling.adapter is not None:
            adapter_file(model.path, sampling.adapter)
        limit = min(self._settings.max_model_len, model.manifest.context_length)
        tokenizer = self._tokenizers.of(model)
        _refuse_hopeless(messages, tokenizer, limit)
        prompt_tokens = tokenizer.count_chat(messages)
        asked = "max_tokens" in sampling.model_fields_set
        max_tokens = sampling.max_tokens if asked else max(1, min(sampling.max_tokens, limit - prompt_tokens))
        if prompt_tokens + max_tokens > limit:
            raise _too_long(messages, prompt_tokens, max_tokens, limit)
        if sampling.min_tokens > max_tokens:
            raise InvalidInputError(
                f"sampling.min_tokens exceeds max_tokens ({max_tokens}): lower it", field="sampling.min_tokens"
            )
        # Last, for it may take a second.
        check_constraint(sampling)
        return sampling.model_copy(update={"max_tokens": max_tokens})


def _refuse_hopeless(messages: Sequence[Mapping[str, str]], tokenizer: ChatTokenizer, limit: int) -> None:
    """Refuse what cannot fit before spending seconds on tokenising it."""
    size = sum(len(message["content"].encode(errors="replace")) for message in messages)
    least = max(len(messages), size // tokenizer.longest_token)
    if least > limit:
        raise PromptTooLongError(
            f"the prompt has at least {least} tokens, the context holds {limit}: shorten the prompt",
            field="prompt" if len(messages) == 1 else "messages",
        )


def _too_long(
    messages: Sequence[Mapping[str, str]], prompt_tokens: int, max_tokens: int, limit: int
) -> PromptTooLongError:
    return PromptTooLongError(
        f"{prompt_tokens} prompt tokens and max_tokens {max_tokens} make {prompt_tokens + max_tokens}, "
        f"the context holds {limit}: shorten the prompt or lower sampling.max_tokens",
        field="prompt" if len(messages) == 1 else "messages",
    )
