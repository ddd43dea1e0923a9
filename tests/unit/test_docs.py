import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["PAGES"]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_compose_file_holds_no_secret_and_drops_privileges() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    for name in ("api", "worker", "maintenance", "flower", "migrate"):
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "${" in service["environment"]["TOKENMILL_ENCRYPTION_KEY"]
        assert "${POSTGRES_PASSWORD" in service["environment"]["TOKENMILL_DATABASE_URL"]
        assert "${REDIS_PASSWORD" in service["environment"]["TOKENMILL_REDIS_URL"]
