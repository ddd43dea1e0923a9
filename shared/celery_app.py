"""The Celery application every process shares: a task is a wake-up with a job id, nothing else.

Celery keeps no results and revokes nothing; PostgreSQL is the record. The visibility timeout is long on purpose:
a lost worker is noticed by its lease, not by the broker.
"""

from urllib.parse import urlsplit

from celery import Celery
from kombu.entity import Queue

from shared.errors import ConfigurationError
from shared.outbox import Message, queue_for
from shared.settings import Settings

GENERATE_TASK = "tokenmill.generate"
PRIORITY_STEPS = (0, 3, 6)
SOCKET_TIMEOUT_SECONDS = 10.0
PUBLISH_RETRY = {"max_retries": 1, "interval_start": 0.1, "interval_max": 0.1}


def broker_url(settings: Settings) -> str:
    """Return the broker's URL.

    Raises:
        ConfigurationError: it is missing, or names a Sentinel or Cluster, which Celery's priorities do not support.
    """
    if settings.redis_url is None:
        raise ConfigurationError("set TOKENMILL_REDIS_URL, or start the fleet with `tokenmill up`", field="redis_url")
    url = settings.redis_url.get_secret_value()
    if urlsplit(url).scheme not in {"redis", "rediss"}:
        raise ConfigurationError(
            "TOKENMILL_REDIS_URL must be redis:// or rediss://; Sentinel and Cluster are not supported",
            field="redis_url",
        )
    return url


def create_celery(settings: Settings, *, model: str | None = None) -> Celery:
    """Build the application; with `model`, a worker of it consumes that model's queue only."""
    app = Celery("tokenmill", broker=broker_url(settings), set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_create_missing_queues=True,
        task_send_sent_event=True,
        worker_send_task_events=True,
        worker_prefetch_multiplier=1,
        worker_concurrency=settings.max_num_seqs,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": int(settings.visibility_timeout.total_seconds()),
            "queue_order_strategy": "priority",
            "priority_steps": list(PRIORITY_STEPS),
            "sep": ":",
            "socket_timeout": SOCKET_TIMEOUT_SECONDS,
            "socket_connect_timeout": SOCKET_TIMEOUT_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "retry_on_timeout": False,
        },
        enable_utc=True,
        timezone="UTC",
    )
    if model is not None:
        app.conf.task_queues = [Queue(queue_for(model))]  # type: ignore[no-untyped-call]  # kombu is untyped here
        app.conf.task_default_queue = queue_for(model)
    return app


def publish(app: Celery, message: Message) -> None:
    """Send one wake-up. Raises kombu's OperationalError when the broker is away."""
    app.send_task(
        GENERATE_TASK,
        args=[message.job_id],
        queue=message.queue,
        priority=message.priority,
        retry=True,
        retry_policy=PUBLISH_RETRY,
    )


def redis_keys_of(queue: str) -> list[str]:
    """Redis lists that hold the messages of `queue`, one per priority step."""
    return [queue if step == 0 else f"{queue}:{step}" for step in PRIORITY_STEPS]
