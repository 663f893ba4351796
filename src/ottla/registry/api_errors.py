"""What the REST API refuses: HTTP's status, a code of its own, and a sentence. Codes and texts are Confluent's."""

from __future__ import annotations

from typing import Final

RECURSION: Final = "the references of a schema lead back to it"


class ApiError(Exception):
    """An answer other than success. The first three digits of a long code are HTTP's status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> ApiError:
    return ApiError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> ApiError:
    return ApiError(40402, f"Version {version} not found.")


def schema_not_found(what: int | str | None = None) -> ApiError:
    return ApiError(40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> ApiError:
    return ApiError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> ApiError:
    return ApiError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> ApiError:
    return ApiError(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> ApiError:
    return ApiError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_subject_compatibility(subject: str) -> ApiError:
    return ApiError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> ApiError:
    return ApiError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> ApiError:
    details = ", ".join(messages)
    return ApiError(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{details}]',
    )


def invalid_schema(details: str) -> ApiError:
    return ApiError(42201, details)


def invalid_version(text: str) -> ApiError:
    return ApiError(
        42202,
        f"The specified version '{text}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility() -> ApiError:
    return ApiError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> ApiError:
    return ApiError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT.")


def not_permitted(sentence: str) -> ApiError:
    return ApiError(42205, sentence)


def reference_exists(subject: str, version: int) -> ApiError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return ApiError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> ApiError:
    return ApiError(42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> ApiError:
    return ApiError(42209, "Register operation failed because schema is too large")


def invalid_rule_set(sentence: str) -> ApiError:
    return ApiError(42210, sentence)


def store_error(sentence: str) -> ApiError:
    return ApiError(50001, sentence)


def timed_out(sentence: str) -> ApiError:
    return ApiError(50002, sentence)


def forwarding_failed(sentence: str) -> ApiError:
    return ApiError(50003, sentence)


def unknown_leader() -> ApiError:
    return ApiError(50004, "Leader not known.")
