import time

import pytest
from sqlalchemy import text, update

from api import auth
from api import keys as keys_command
from shared import api_keys
from shared.crypto import KeyRing, generate_key
from shared.errors import AuthenticationError, InvalidInputError, NotFoundError
from shared.models import ApiKey
from tests.integration.api.caller import Api
from tests.integration.api.conftest import Serve

pytestmark = pytest.mark.servers

SECRET = "a" * 43


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        f"Bearer tm_0123456789abcdef_{SECRET}",
        f"Bearer tm_0123456789abcdef_{SECRET}x",
        "Bearer tm_%00_x",
        "Bearer sk-something",
    ],
)
def test_without_a_right_key_nothing_is_served(api: Api, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for method, path in [("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("POST", "/generate"), ("GET", "/openapi.json")]:
        answer = api.client.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_wrong_secret_of_a_known_id_is_refused_without_a_hint_of_it(api: Api) -> None:
    wrong = api.key[:-43] + SECRET
    answer = api.get("/v1/jobs", key=wrong)
    assert answer.status_code == 401
    assert SECRET not in answer.text


@pytest.mark.parametrize(("column", "word"), [("expires_at", "expired"), ("revoked_at", "revoked")])
def test_an_ended_key_is_refused(api: Api, column: str, word: str) -> None:
    with api.database.transaction() as session:
        session.execute(text(f"UPDATE api_key SET {column} = now()"))  # noqa: S608  # our own column names
    answer = api.get("/v1/jobs")
    assert answer.status_code == 401
    assert word in answer.json()["error"]["message"]


def test_a_remembered_key_is_forgotten_within_seconds(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.get("/v1/jobs").status_code == 200
    with api.database.transaction() as session:
        api_keys.revoke(session, api.key.split("_")[1])
    ahead = time.monotonic() + auth.REMEMBER_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: ahead)
    assert api.get("/v1/jobs").status_code == 401


def test_wrong_keys_are_not_remembered(api: Api) -> None:
    later = api.key_with("read")
    with api.database.transaction() as session:
        session.execute(update(ApiKey).values(revoked_at=text("now()")))
    assert api.get("/v1/jobs", key=later).status_code == 401
    with api.database.transaction() as session:
        session.execute(update(ApiKey).values(revoked_at=None))
    assert api.get("/v1/jobs", key=later).status_code == 200


@pytest.mark.parametrize(
    ("scopes", "method", "path", "status"),
    [
        (["read"], "POST", "/v1/jobs", 403),
        (["read"], "POST", "/generate", 403),
        (["read"], "DELETE", f"/v1/jobs/job_{'0' * 32}", 403),
        (["submit"], "GET", "/v1/jobs", 403),
        (["submit"], "GET", f"/v1/jobs/job_{'0' * 32}", 403),
        (["submit"], "POST", "/generate", 403),
        (["submit"], "POST", "/v1/jobs", 202),
        (["admin"], "POST", "/v1/jobs", 202),
        (["admin"], "GET", "/v1/jobs", 200),
    ],
)
def test_scopes(api: Api, scopes: list[str], method: str, path: str, status: int) -> None:
    body = {"prompt": "x"} if method == "POST" else None
    answer = api.call(method, path, key=api.key_with(*scopes), json=body)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["code"] == "permission_denied"
        assert answer.json()["error"]["type"] == "permission_error"


def test_a_job_of_another_key_does_not_exist(api: Api) -> None:
    job_id = api.submit()["id"]
    stranger = api.key_with("submit", "read")
    assert api.get(f"/v1/jobs/{job_id}", key=stranger).status_code == 404
    assert api.get(f"/v1/jobs/{job_id}?wait=5", key=stranger).status_code == 404
    assert api.post(f"/v1/jobs/{job_id}/cancel", key=stranger).status_code == 404
    assert api.post(f"/v1/jobs/{job_id}/retry", key=stranger).status_code == 404
    assert api.call("DELETE", f"/v1/jobs/{job_id}", key=stranger).status_code == 404
    assert api.get("/v1/jobs", key=stranger).json()["data"] == []
    assert api.get(f"/v1/jobs/{job_id}").json()["status"] == "queued"


def test_only_a_digest_of_the_secret_is_stored(api: Api) -> None:
    secret = api.key.rpartition("_")[2] if api.key.count("_") == 2 else api.key[20:]
    with api.database.transaction() as session:
        dump = session.scalars(text("SELECT row_to_json(k)::text || encode(secret_digest, 'escape') FROM api_key k"))
        assert secret not in "".join(dump)


def test_a_key_outlives_a_rotation_and_not_the_loss_of_its_encryption_key(api: Api) -> None:
    rotated = KeyRing.from_setting(f"{generate_key()},{_setting_of(api)}")
    with api.database.transaction() as session:
        assert api_keys.authenticate(session, rotated, api.key).name == "test"


def _setting_of(api: Api) -> str:
    settings = api.client.app.state.services.settings  # type: ignore[attr-defined]  # starlette types it as any ASGI app
    return str(settings.encryption_key.get_secret_value())


@pytest.mark.parametrize(("name", "scopes"), [("", ["read"]), ("x\n", ["read"]), ("x", []), ("x", ["root"])])
def test_a_key_needs_a_name_and_known_scopes(api: Api, name: str, scopes: list[str]) -> None:
    with pytest.raises(InvalidInputError), api.database.transaction() as session:
        api_keys.create(session, api.keyring, name, scopes)


def test_an_unknown_key_cannot_be_revoked(api: Api) -> None:
    with pytest.raises(NotFoundError), api.database.transaction() as session:
        api_keys.revoke(session, "0" * 16)


def test_the_command_makes_and_revokes_keys(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as api:
        monkeypatch.setattr(keys_command, "get_settings", lambda: api.client.app.state.services.settings)  # type: ignore[attr-defined]  # see above
        assert keys_command.main(["create", "--name", "ops", "--scopes", "read,admin"]) == 0
        key = capsys.readouterr().out.strip()
        with api.database.transaction() as session:
            assert api_keys.authenticate(session, api.keyring, key).scopes == ["admin", "read"]
        assert keys_command.main(["revoke", key.split("_")[1]]) == 0
        with pytest.raises(AuthenticationError), api.database.transaction() as session:
            api_keys.authenticate(session, api.keyring, key)
        assert keys_command.main(["create", "--name", "ops", "--scopes", "root"]) == 1
        assert "scopes" in capsys.readouterr().err
