"""What the engine refuses before it queues a request."""

from shared.errors import InvalidInputError, PromptTooLongError
from shared.sampling import check_token_ids
from workers.engine.sequence import GenerationRequest


def check_request(request: GenerationRequest, *, vocab_size: int, max_model_len: int) -> None:
    """Refuse prompts the model cannot take and parameters it cannot follow.

    Raises:
        InvalidInputError: the prompt is empty, it or the parameters have token ids outside 0 to `vocab_size` - 1, or
            they ask for what only `Generations` serves.
        PromptTooLongError: prompt and `max_tokens` exceed `max_model_len`.
    """
    if not request.prompt_ids:
        raise InvalidInputError("the prompt has no tokens; send some text", field="prompt")
    if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= vocab_size:
        raise InvalidInputError(
            f"the prompt has token ids outside 0 to {vocab_size - 1}; encode it with the model's own tokenizer",
            field="prompt",
        )
    check_token_ids(request.params, vocab_size)
    if request.params.constrained and request.constraint is None:
        raise InvalidInputError("the constraint is not compiled; make one with a GrammarCompiler", field="constraint")
    if request.params.n > 1 and request.params.num_beams == 1:
        raise InvalidInputError("the engine serves one output per request; submit through Generations", field="n")
    prompt, wanted = len(request.prompt_ids), request.params.max_tokens
    if prompt + wanted > max_model_len:
        raise PromptTooLongError(
            f"the prompt has {prompt} tokens and max_tokens is {wanted}, together more than the {max_model_len}"
            " this worker holds; shorten the prompt or lower max_tokens",
            field="prompt",
        )
