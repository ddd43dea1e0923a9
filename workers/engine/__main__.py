"""`python -m workers.engine MODEL PROMPT`: one answer, without any server."""

import argparse
import os
import sys
from pathlib import Path

from shared.errors import TokenmillError
from shared.model_registry import resolve
from shared.sampling import SamplingParams
from shared.settings import get_settings
from shared.tokenizer import ChatTokenizer
from workers.engine.decoder_config import CONFIG_FILE
from workers.engine.engine import Engine
from workers.engine.sequence import GenerationOutput, GenerationRequest


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.engine", description="Generate one answer on this CPU.")
    parser.add_argument("model", help="name of an installed model, or a model directory")
    parser.add_argument("prompt", help="what the user says")
    parser.add_argument("--system", help="system message")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int)
    return parser.parse_args(argv)


def _directory(model: str) -> Path:
    if (Path(model) / CONFIG_FILE).is_file():
        return Path(model)
    return resolve(model, get_settings().model_dir).path


def _generate(arguments: argparse.Namespace) -> GenerationOutput:
    # Late, because it loads onnxruntime: --help and a wrong name answer without it.
    from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig  # noqa: PLC0415  # see above

    directory = _directory(arguments.model)
    params = SamplingParams(max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=arguments.seed)
    tokenizer = ChatTokenizer.from_directory(directory)
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    prompt_ids = tokenizer.encode_chat([*system, {"role": "user", "content": arguments.prompt}])
    threads = len(os.sched_getaffinity(0))
    config = RunnerConfig(1, len(prompt_ids) + params.max_tokens, threads)
    with Engine(ContinuousRunner(directory, config), tokenizer.decode) as engine:
        return engine.submit(GenerationRequest("command line", prompt_ids, params)).result()


def main(argv: list[str] | None = None) -> int:
    """Write the answer to standard output and the figures to standard error; return the exit status."""
    try:
        output = _generate(_arguments(argv))
    except (TokenmillError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{output.text}\n")
    sys.stderr.write(
        f"{output.prompt_tokens} prompt tokens in {output.prefill_s:.2f} s,"
        f" {output.completion_tokens} tokens in {output.decode_s:.2f} s, finish reason {output.finish_reason}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
