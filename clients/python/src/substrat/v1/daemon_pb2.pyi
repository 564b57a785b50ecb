import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from substrat.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SandboxPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SANDBOX_POLICY_UNSPECIFIED: _ClassVar[SandboxPolicy]
    SANDBOX_POLICY_REQUIRED: _ClassVar[SandboxPolicy]
    SANDBOX_POLICY_PREFERRED: _ClassVar[SandboxPolicy]
    SANDBOX_POLICY_OFF: _ClassVar[SandboxPolicy]
SANDBOX_POLICY_UNSPECIFIED: SandboxPolicy
SANDBOX_POLICY_REQUIRED: SandboxPolicy
SANDBOX_POLICY_PREFERRED: SandboxPolicy
SANDBOX_POLICY_OFF: SandboxPolicy

class Daemon(_message.Message):
    __slots__ = ("version", "pid", "start_time", "home", "agent_count", "busy_count", "waiting_count", "queued_count", "session_count", "workspace_count", "inbox_size", "journal", "recovery", "draining", "sandbox")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    AGENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUSY_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITING_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SESSION_COUNT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_COUNT_FIELD_NUMBER: _ClassVar[int]
    INBOX_SIZE_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    version: str
    pid: int
    start_time: _timestamp_pb2.Timestamp
    home: str
    agent_count: int
    busy_count: int
    waiting_count: int
    queued_count: int
    session_count: int
    workspace_count: int
    inbox_size: int
    journal: Journal
    recovery: RecoveryReport
    draining: bool
    sandbox: Sandbox
    def __init__(self, version: _Optional[str] = ..., pid: _Optional[int] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., home: _Optional[str] = ..., agent_count: _Optional[int] = ..., busy_count: _Optional[int] = ..., waiting_count: _Optional[int] = ..., queued_count: _Optional[int] = ..., session_count: _Optional[int] = ..., workspace_count: _Optional[int] = ..., inbox_size: _Optional[int] = ..., journal: _Optional[_Union[Journal, _Mapping]] = ..., recovery: _Optional[_Union[RecoveryReport, _Mapping]] = ..., draining: _Optional[bool] = ..., sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class Sandbox(_message.Message):
    __slots__ = ("policy", "in_force", "reason", "bubblewrap_version", "limits", "state")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BUBBLEWRAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    policy: SandboxPolicy
    in_force: bool
    reason: str
    bubblewrap_version: str
    limits: str
    state: _sandbox_pb2.SandboxState
    def __init__(self, policy: _Optional[_Union[SandboxPolicy, str]] = ..., in_force: _Optional[bool] = ..., reason: _Optional[str] = ..., bubblewrap_version: _Optional[str] = ..., limits: _Optional[str] = ..., state: _Optional[_Union[_sandbox_pb2.SandboxState, str]] = ...) -> None: ...

class Journal(_message.Message):
    __slots__ = ("durable_sequence", "checkpoint_sequence", "segment_count", "tail_bytes", "commit_count", "full")
    DURABLE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    durable_sequence: int
    checkpoint_sequence: int
    segment_count: int
    tail_bytes: int
    commit_count: int
    full: bool
    def __init__(self, durable_sequence: _Optional[int] = ..., checkpoint_sequence: _Optional[int] = ..., segment_count: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., commit_count: _Optional[int] = ..., full: _Optional[bool] = ...) -> None: ...

class RecoveryReport(_message.Message):
    __slots__ = ("clean", "duration", "checkpoint_sequence", "replayed_events", "rebuilt", "torn_bytes", "repaired_projections", "interrupted_turns", "orphaned_calls", "returned_messages", "quarantined", "imported")
    CLEAN_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    REBUILT_FIELD_NUMBER: _ClassVar[int]
    TORN_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_PROJECTIONS_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_TURNS_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_CALLS_FIELD_NUMBER: _ClassVar[int]
    RETURNED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    IMPORTED_FIELD_NUMBER: _ClassVar[int]
    clean: bool
    duration: _duration_pb2.Duration
    checkpoint_sequence: int
    replayed_events: int
    rebuilt: bool
    torn_bytes: int
    repaired_projections: int
    interrupted_turns: int
    orphaned_calls: int
    returned_messages: int
    quarantined: _containers.RepeatedScalarFieldContainer[str]
    imported: str
    def __init__(self, clean: _Optional[bool] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., checkpoint_sequence: _Optional[int] = ..., replayed_events: _Optional[int] = ..., rebuilt: _Optional[bool] = ..., torn_bytes: _Optional[int] = ..., repaired_projections: _Optional[int] = ..., interrupted_turns: _Optional[int] = ..., orphaned_calls: _Optional[int] = ..., returned_messages: _Optional[int] = ..., quarantined: _Optional[_Iterable[str]] = ..., imported: _Optional[str] = ...) -> None: ...

class ConfigValue(_message.Message):
    __slots__ = ("key", "value", "source", "description")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    source: str
    description: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...
