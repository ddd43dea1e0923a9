import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from shared.states import JobState
from tests.integration.api.caller import RECEIPT, Api

pytestmark = pytest.mark.servers


def test_a_completed_job_shows_everything(api: Api) -> None:
    job_id = api.submit()["id"]
    api.complete(job_id, "Hello!")
    job = api.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["output"], job["finish_reason"], job["attempts"]) == ("completed", "Hello!", "stop", 1)
    assert job["usage"] == {"prompt_tokens": 20, "cached_tokens": 4, "completion_tokens": 10, "total_tokens": 30}
    assert job["timings"] == {"queue_ms": 5.0, "prefill_ms": 50.0, "decode_ms": 200.0, "tokens_per_second": 50.0}
    assert job["privacy"] == RECEIPT
    assert job["model_version"] == "tiny-chat@v1"
    assert job["error"] is None
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    assert all(job[name].endswith("Z") for name in ("created_at", "started_at", "finished_at"))


def test_a_failed_job_says_why(api: Api) -> None:
    job_id = api.submit()["id"]
    api.end(job_id, JobState.DEAD)
    job = api.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["output"], job["usage"]) == ("dead", None, None)
    assert job["error"] == {"code": "generation_failed", "message": "the engine failed", "retryable": True}


def test_a_long_poll_ends_with_the_job(api: Api) -> None:
    job_id = api.submit()["id"]
    api.get("/v1/jobs")  # the first request opens connections
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        poll = pool.submit(api.get, f"/v1/jobs/{job_id}?wait=30")
        time.sleep(0.3)
        assert not poll.done()
        api.complete(job_id)
        completed = time.monotonic()
        job = poll.result(10).json()
    assert job["status"] == "completed"
    assert time.monotonic() - completed < 2
    assert time.monotonic() - begun < 10


def test_a_long_poll_gives_up_in_time_and_a_finished_job_is_not_waited_for(api: Api) -> None:
    job_id = api.submit()["id"]
    begun = time.monotonic()
    assert api.get(f"/v1/jobs/{job_id}?wait=0.2").json()["status"] == "queued"
    assert 0.2 <= time.monotonic() - begun < 5
    api.complete(job_id)
    begun = time.monotonic()
    assert api.get(f"/v1/jobs/{job_id}?wait=60").json()["status"] == "completed"
    assert time.monotonic() - begun < 5


def test_forty_long_polls_are_served_while_others_are_answered(api: Api) -> None:
    jobs = [api.submit()["id"] for _ in range(10)]
    with ThreadPoolExecutor(40) as pool:
        polls = [pool.submit(api.get, f"/v1/jobs/{job_id}?wait=60") for job_id in jobs * 4]
        time.sleep(0.5)
        begun = time.monotonic()
        assert api.get("/v1/jobs").status_code == 200
        assert time.monotonic() - begun < 2
        for job_id in jobs:
            api.complete(job_id)
        assert {poll.result(20).json()["status"] for poll in polls} == {"completed"}


def test_pages_walk_through_all_jobs_once_newest_first(api: Api) -> None:
    submitted = [api.submit(metadata={"n": str(n)})["id"] for n in range(7)]
    seen: list[str] = []
    after = ""
    while True:
        page = api.get(f"/v1/jobs?limit=3{after}").json()
        ids = [job["id"] for job in page["data"]]
        assert page["object"] == "list"
        assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
        seen += ids
        after = f"&after={page['last_id']}"
        if not page["has_more"]:
            break
    assert len(page["data"]) == 1
    assert sorted(seen) == sorted(submitted)
    assert seen == sorted(seen, reverse=True)


def test_an_empty_page_has_null_ids(api: Api) -> None:
    page = api.get("/v1/jobs").json()
    assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_a_page_can_be_limited_to_a_status(api: Api) -> None:
    done, _queued = api.submit()["id"], api.submit()["id"]
    api.complete(done, "Hello!")
    page = api.get("/v1/jobs?status=completed").json()["data"]
    assert [(job["id"], job["output"]) for job in page] == [(done, "Hello!")]


def test_generate_returns_text(api: Api) -> None:
    def work() -> None:
        while not (page := api.get("/v1/jobs").json()["data"]):
            time.sleep(0.05)
        api.complete(page[0]["id"], "Hello!")

    worker = threading.Thread(target=work)
    worker.start()
    answer = api.post("/generate", {"prompt": "Say hello."})
    worker.join()
    assert answer.status_code == 200
    assert answer.json()["text"] == answer.json()["output"] == "Hello!"
    assert answer.json()["status"] == "completed"


def test_generate_returns_the_job_when_it_takes_longer(api: Api) -> None:
    answer = api.post("/generate?wait=0.1", {"messages": [{"role": "user", "content": "Say hello."}]})
    assert answer.status_code == 202
    assert (answer.json()["object"], answer.json()["status"]) == ("job", "queued")
    assert api.get(answer.json()["status_url"]).status_code == 200


def test_generate_tells_of_a_job_without_text_and_is_not_to_be_repeated(api: Api) -> None:
    headers = {"Idempotency-Key": "k-1"}
    job = api.post("/generate?wait=0", {"prompt": "x"}, headers=headers).json()
    api.end(job["id"], JobState.FAILED)
    answer = api.post("/generate", {"prompt": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "generation_failed")
    assert answer.headers["x-should-retry"] == "false"
    assert job["id"] in answer.json()["error"]["message"]


def test_a_queued_job_is_cancelled_at_once_and_again(api: Api) -> None:
    job_id = api.submit()["id"]
    for _ in range(2):
        answer = api.post(f"/v1/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert api.count("audit_event WHERE event = 'job.cancel_requested'") == 1


def test_a_running_job_is_marked_and_a_completed_one_refuses(api: Api) -> None:
    job_id = api.submit()["id"]
    api.claim(job_id)
    running = api.post(f"/v1/jobs/{job_id}/cancel").json()
    assert running["status"] == "running"
    assert running["cancel_requested_at"] is not None
    done = api.submit()["id"]
    api.complete(done)
    answer = api.post(f"/v1/jobs/{done}/cancel")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "state_conflict")
    assert answer.headers["x-should-retry"] == "false"


def test_deleting_erases_all_but_the_audit(api: Api) -> None:
    job_id = api.submit(metadata={"who": "me"})["id"]
    assert api.call("DELETE", f"/v1/jobs/{job_id}").status_code == 409
    api.complete(job_id)
    answer = api.call("DELETE", f"/v1/jobs/{job_id}")
    assert answer.json() == {"id": job_id, "object": "job", "deleted": True}
    assert [api.count(table) for table in ("job", "result", "attempt", "outbox")] == [0, 0, 0, 0]
    assert api.get(f"/v1/jobs/{job_id}").status_code == 404
    with api.database.transaction() as session:
        events = session.scalars(text("SELECT event FROM audit_event WHERE job_id = :id ORDER BY id"), {"id": job_id})
        assert list(events) == ["job.submitted", "job.completed", "job.deleted"]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED])
def test_an_ended_job_runs_again(api: Api, state: JobState) -> None:
    job_id = api.submit(deadline="2099-01-01T00:00:00Z")["id"]
    api.end(job_id, state)
    with api.database.transaction() as session:
        session.execute(text("UPDATE job SET deadline = now()"))
    job = api.post(f"/v1/jobs/{job_id}/retry").json()
    assert (job["status"], job["attempts"], job["error"], job["finished_at"]) == ("queued", 0, None, None)
    assert job["deadline"] is None
    api.complete(job_id, "At last.")
    assert api.get(f"/v1/jobs/{job_id}").json()["output"] == "At last."
    assert api.count("audit_event WHERE event = 'job.retried'") == 1


def test_a_retry_keeps_a_deadline_that_lies_ahead(api: Api) -> None:
    job_id = api.submit(deadline="2099-01-01T00:00:00Z")["id"]
    api.end(job_id, JobState.FAILED)
    assert api.post(f"/v1/jobs/{job_id}/retry").json()["deadline"] == "2099-01-01T00:00:00Z"


def test_what_cannot_run_again_says_why(api: Api) -> None:
    job_id = api.submit()["id"]
    answer = api.post(f"/v1/jobs/{job_id}/retry")
    assert (answer.status_code, "queued" in answer.json()["error"]["message"]) == (409, True)
    api.end(job_id, JobState.FAILED)
    with api.database.transaction() as session:
        session.execute(text("UPDATE job SET prompt_ciphertext = NULL"))
    answer = api.post(f"/v1/jobs/{job_id}/retry")
    assert (answer.status_code, "not kept" in answer.json()["error"]["message"]) == (409, True)
