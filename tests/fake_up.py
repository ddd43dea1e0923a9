"""`python -m tests.fake_up STATE_DIR [WORKERS]`: the real supervisor and servers; workers around the fake model."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.supervisor import up
from cli.supervisor.core_sets import written
from cli.supervisor.process_spec import ProcessSpec
from cli.supervisor.roles import process_specs
from shared.settings import Settings
from tests import fake_model
from tests.integration.api.tiny_model import TEMPLATE, tokenizer_json

WORKER = (
    "import sys; from shared.parent_watch import end_with_parent; from shared.settings import get_settings; "
    "from tests.fake_worker import main; end_with_parent(get_settings().supervisor_pid); sys.exit(main(*sys.argv[1:]))"
)
REPOSITORY = Path(__file__).parent.parent


def specs(settings: Settings, environment: Mapping[str, str]) -> list[ProcessSpec]:
    paths = {**environment, "PYTHONPATH": str(REPOSITORY)}
    return [faked(spec) for spec in process_specs(settings, paths)]


def faked(spec: ProcessSpec) -> ProcessSpec:
    if spec.role != "worker":
        return spec
    arguments = (sys.executable, "-c", WORKER, written(spec.cores or ()), "0.001")
    return dataclasses.replace(spec, arguments=arguments)


def main(state_dir: str, workers: str = "1") -> None:
    model_dir = Path(state_dir).parent / "models"
    if not model_dir.exists():
        fake_model.install(model_dir)
        version = model_dir / fake_model.NAME / "1"
        (version / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
        config = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
        (version / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    settings = Settings.model_validate(
        {"state_dir": state_dir, "model_dir": model_dir, "model": fake_model.NAME, "workers": int(workers)}
    )
    up.run(settings, lambda _fleet, _key: None, specs)


if __name__ == "__main__":
    main(*sys.argv[1:])
