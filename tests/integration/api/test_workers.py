import datetime as dt

import pytest

from shared import api_keys, workers_repository
from shared.workers_repository import Heartbeat
from tests.integration.api.caller import Api

pytestmark = pytest.mark.servers


def beat(api: Api, worker_id: str, status: str) -> None:
    started = dt.datetime.now(dt.UTC)
    with api.database.transaction() as session:
        workers_repository.beat(
            session, Heartbeat(worker_id, "host-a", 7, [0, 1], "m", "int8-1", status, started, {"slots": 4})
        )


def admin(api: Api) -> dict[str, str]:
    with api.database.transaction() as session:
        return {"Authorization": f"Bearer {api_keys.create(session, api.keyring, 'operator', ['admin'])}"}


def test_fresh_workers_are_listed_and_stopped_ones_are_not(api: Api) -> None:
    beat(api, "w-ready", "ready")
    beat(api, "w-draining", "draining")
    beat(api, "w-stopped", "stopped")
    answer = api.client.get("/v1/workers", headers=admin(api))
    assert answer.status_code == 200
    assert [worker["worker_id"] for worker in answer.json()["data"]] == ["w-draining", "w-ready"]
    assert answer.json()["data"][1]["cores"] == [0, 1]


def test_the_list_needs_the_admin_scope(api: Api) -> None:
    answer = api.client.get("/v1/workers", headers={"Authorization": f"Bearer {api.key}"})
    assert answer.status_code == 403
