"""Every error Tokenmill raises on purpose: one tree, a stable `code` each.

`code` is what clients switch on and `retryable` says whether the same job may succeed later. The message names what
is wrong and the next step, and never quotes prompt text. HTTP statuses are mapped in `api/` only.
"""

from typing import ClassVar


class TokenmillError(Exception):
    """Base of every error raised on purpose."""

    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, field: str | None = None) -> None:
        """Keep `message` for people and `field`, the name of the offending input, for programs."""
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidInputError(TokenmillError):
    """Raised when a field of the input is missing, malformed or out of range."""

    code = "invalid_input"


class PromptTooLongError(InvalidInputError):
    """Raised when prompt tokens plus `max_tokens` do not fit the model's context."""

    code = "prompt_too_long"


class ModelNotFoundError(InvalidInputError):
    """Raised when no installed model has the name asked for."""

    code = "model_not_found"


class ModelUnsupportedError(TokenmillError):
    """Raised when a model file or directory is of a kind this version cannot import or serve."""

    code = "model_unsupported"


class ModelCorruptError(TokenmillError):
    """Raised when a model file differs from the SHA-256 in its manifest."""

    code = "model_corrupt"


class DownloadError(TokenmillError):
    """Raised when a model cannot be downloaded or what arrived is not what was pinned."""

    code = "download_failed"


class IdempotencyConflictError(TokenmillError):
    """Raised when an idempotency key comes again with a different body."""

    code = "idempotency_conflict"


class AuthenticationError(TokenmillError):
    """Raised when the API key is missing, unknown, expired or revoked."""

    code = "invalid_api_key"


class PermissionDeniedError(TokenmillError):
    """Raised when the API key lacks the scope an action needs."""

    code = "permission_denied"


class NotFoundError(TokenmillError):
    """Raised when no such thing exists for this API key."""

    code = "not_found"


class StateConflictError(TokenmillError):
    """Raised when a job's state does not allow the action asked for."""

    code = "state_conflict"


class ServiceUnavailableError(TokenmillError):
    """Raised when a part the action needs (database, model) is away for now."""

    code = "service_unavailable"
    retryable = True


class ScrubFailedError(TokenmillError):
    """Raised when scrubbing failed; the job is closed without generating (fail closed)."""

    code = "scrub_failed"


class PrivacyBlockedError(TokenmillError):
    """Raised when a text holds data of a type that the policy blocks; nothing is generated."""

    code = "privacy_blocked"


class DecryptionError(TokenmillError):
    """Raised when stored content cannot be decrypted with the configured keys."""

    code = "decryption_failed"


class EncryptionKeyMissingError(DecryptionError):
    """Raised when content was encrypted with a key this process does not hold; a worker that holds it can go on."""

    code = "encryption_key_missing"
    retryable = True


class GenerationFailedError(TokenmillError):
    """Raised when a step of the engine failed for this sequence."""

    code = "generation_failed"
    retryable = True


class WorkerStoppingError(TokenmillError):
    """Raised for sequences handed back because the worker is stopping."""

    code = "worker_stopping"
    retryable = True


class LeaseLostError(TokenmillError):
    """Raised when another attempt holds the job; this one's work is discarded."""

    code = "lease_lost"
    retryable = True


class DeadlineExceededError(TokenmillError):
    """Raised when a job's deadline passed before it finished."""

    code = "deadline_exceeded"


class CancelledError(TokenmillError):
    """Raised when the client cancelled the job."""

    code = "cancelled"


class AttemptsExhaustedError(TokenmillError):
    """Raised when every allowed attempt at a job ended without a result."""

    code = "attempts_exhausted"


class ConfigurationError(TokenmillError):
    """Raised when a setting is missing or cannot work; names the setting."""

    code = "configuration_error"


class ServerStartError(TokenmillError):
    """Raised when an embedded server or a process of the fleet does not become ready."""

    code = "server_start_failed"
    retryable = True


class BodyTooLargeError(TokenmillError):
    """Raised when a request body is longer than `max_body_bytes`."""

    code = "body_too_large"


class UnsupportedMediaTypeError(TokenmillError):
    """Raised when a body is not declared to be JSON."""

    code = "unsupported_media_type"


class MethodNotAllowedError(TokenmillError):
    """Raised when a path exists but not with this method."""

    code = "method_not_allowed"


class QueueFullError(TokenmillError):
    """Raised when as many jobs are queued as `queue_limit` allows."""

    code = "queue_full"
    retryable = True
