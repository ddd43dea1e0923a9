"""Every setting of Tokenmill, in one class: `TOKENMILL_*` variables first, then `tokenmill.toml`.

This is the only module that reads the environment.
"""

import os
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

DEFAULT_MODEL = "smollm2-135m-instruct"


def _seconds(value: object) -> object:
    """Take `2` and `2.5` for seconds: from the environment every value is text, which pydantic reads as ISO 8601."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable) or str(Path.home() / fallback)
    return Path(base) / "tokenmill"


class Settings(BaseSettings):
    """Effective settings. Durations accept seconds or ISO 8601; paths are made absolute by the caller's directory."""

    model_config = SettingsConfigDict(env_prefix="TOKENMILL_", toml_file="tokenmill.toml", extra="ignore")

    database_url: SecretStr | None = Field(default=None, description="PostgreSQL URL; embedded server when absent")
    redis_url: SecretStr | None = Field(default=None, description="Redis or Valkey URL; embedded server when absent")
    state_dir: Path = Field(default=Path(".tokenmill"), description="Runtime state: keys, logs, pidfiles, data")
    model_dir: Path = Field(
        default_factory=lambda: _xdg("XDG_DATA_HOME", ".local/share") / "models", description="Installed models"
    )
    cache_dir: Path = Field(default_factory=lambda: _xdg("XDG_CACHE_HOME", ".cache"), description="Verified downloads")
    model: str = Field(default=DEFAULT_MODEL, description="Model served when a job names none")
    encryption_key: SecretStr | None = Field(default=None, description="`id:base64` list; the first one encrypts")

    api_host: str = Field(default="127.0.0.1", description="Address the API listens on")
    api_port: int = Field(default=0, ge=0, le=65535, description="0 picks a free port and keeps it")
    flower_port: int = Field(default=0, ge=0, le=65535, description="0 picks a free port and keeps it")
    postgres_port: int = Field(default=0, ge=0, le=65535, description="Embedded PostgreSQL; 0 picks a free port")
    redis_port: int = Field(default=0, ge=0, le=65535, description="Embedded Valkey; 0 picks a free port")

    api_url: str | None = Field(default=None, description="Where the command line finds the API")
    api_key: SecretStr | None = Field(default=None, description="Key the command line presents")

    workers: int = Field(default=0, ge=0, description="Workers started by `tokenmill up`; 0 means one per core")
    threads_per_worker: int = Field(default=1, ge=1, description="Cores, and engine threads, per worker")
    max_num_seqs: int = Field(default=32, ge=1, le=256, description="Slots of one worker: sequences that share a step")
    max_model_len: int = Field(default=2048, ge=64, description="Tokens per slot; capped at the model's context")
    kv_cache_dtype: Literal["int8", "float32"] = Field(
        default="int8", description="How keys and values are kept: int8 takes a quarter of the memory and time"
    )
    max_num_batched_tokens: int = Field(default=512, ge=16, description="Tokens of one engine step, prefill and decode")
    prefix_cache_mb: int = Field(
        default=512, ge=0, description="MiB of one worker for the KV of prompt prefixes that jobs share; 0 reuses none"
    )
    kv_swap_mb: int = Field(
        default=256, ge=0, description="MiB of one worker for the KV of jobs set aside for more urgent ones"
    )
    worker_memory_mb: int | None = Field(
        default=None, ge=64, description="MiB one worker may take; by default a share of the machine's or container's"
    )
    idle_unload: Duration = Field(
        default=timedelta(minutes=30),
        ge=timedelta(0),
        description="Without a job a worker frees its model after this; 0 keeps it",
    )
    genai_idle: Duration = Field(
        default=timedelta(seconds=300),
        ge=timedelta(seconds=1),
        description="Without a job of its own, the beam search and adapter process ends",
    )
    max_attempts: int = Field(default=3, ge=1, le=100, description="Attempts before a job is dead")
    lease: Duration = Field(default=timedelta(seconds=30), description="How long a claim holds without heartbeat")
    heartbeat: Duration = Field(default=timedelta(seconds=5), description="Interval between lease renewals")
    republish_after: Duration = Field(
        default=timedelta(seconds=10), description="Age of a publication after which a queued job may be published anew"
    )
    visibility_timeout: Duration = Field(
        default=timedelta(hours=6), description="Longer than the longest job; the lease, not this, recovers jobs"
    )
    drain_timeout: Duration = Field(default=timedelta(seconds=60), description="SIGTERM: finish slots within this")
    queue_limit: int = Field(default=1_000_000, ge=1, description="Queued jobs beyond which submissions get 429")
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, description="Largest body of a native submission")
    privacy_recognizers: Path | None = Field(
        default=None, description="YAML file of recognizers of your own, for workers, API and `tokenmill scrub`"
    )
    retention_days: int | None = Field(
        default=None, ge=1, description="Erase content that many days after a job ended; a key may have its own figure"
    )
    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR")
    supervisor_pid: int | None = Field(default=None, description="Set by `tokenmill up`: stop when it is gone")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic-settings passes them by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take explicit arguments first, then the environment, then the TOML file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    def child_environment(self, **overrides: str) -> dict[str, str]:
        """Environment for a process of the fleet: ours plus `overrides` (bare names, without the prefix)."""
        named = {f"TOKENMILL_{name.upper()}": value for name, value in overrides.items()}
        return {**os.environ, "ORT_DISABLE_TELEMETRY": "1", **named}

    def public_values(self) -> dict[str, Any]:
        """Effective values for display; secrets are shown as asterisks."""
        return {name: str(value) for name, value in self.model_dump().items()}


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """Return the settings of this process, read once."""
    return Settings()
