"""The one Celery task: a message wakes a worker up for a job."""

from collections.abc import Callable

from celery import Celery

from shared.celery_app import GENERATE_TASK


def register(app: Celery, run: Callable[[str], None]) -> None:
    """Have `app` call `run(job_id)` for each message. It is acknowledged late, whatever came of the job."""

    def generate(job_id: str) -> None:
        run(job_id)

    app.task(name=GENERATE_TASK, acks_late=True, ignore_result=True, shared=False)(generate)
