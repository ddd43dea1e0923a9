"""A model's chat template: sandboxed jinja2 that behaves as Hugging Face's `apply_chat_template` does."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.errors import InvalidInputError, ModelUnsupportedError

TEMPLATE_FILE = "chat_template.jinja"


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


def _source(path: Path, config: Mapping[str, Any]) -> str:
    file = path / TEMPLATE_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # several named templates: "default" is the chat one
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if not isinstance(source, str):
        raise ModelUnsupportedError(f"{path.name} has no chat template; import an instruction-tuned model")
    return source


class ChatTemplate:
    """Renders messages to the text the model was trained on. Thread safe."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile `source`; `special_tokens` holds `bos_token`, `eos_token` and the like.

        Raises:
            ModelUnsupportedError: the template is not valid jinja2.
        """
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise ModelUnsupportedError(f"the model's chat template does not compile: {error.message}") from error

    @classmethod
    def from_directory(cls, path: Path) -> "ChatTemplate":
        """Read `chat_template.jinja`, or the template inside `tokenizer_config.json`."""
        config = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
        tokens = {key: config[key] for key in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(key)}
        return cls(_source(path, config), {k: v["content"] if isinstance(v, dict) else v for k, v in tokens.items()})

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """Return the rendered conversation.

        Raises:
            InvalidInputError: the template refuses this order of roles or cannot render it.
        """
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except (TemplateError, TypeError, ValueError, OverflowError) as error:
            # The template's own words may quote a message, so they are not passed on, not even as the cause.
            roles = ", ".join(message["role"] for message in messages[:8])
            raise InvalidInputError(
                f"the model's chat template refuses these messages (roles: {roles}; {type(error).__name__}); "
                "start with system or user, alternate user and assistant",
                field="messages",
            ) from None
