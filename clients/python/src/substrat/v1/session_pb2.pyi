import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from substrat.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATE_UNSPECIFIED: _ClassVar[SessionState]
    SESSION_STATE_CREATED: _ClassVar[SessionState]
    SESSION_STATE_ACTIVE: _ClassVar[SessionState]
    SESSION_STATE_SUSPENDING: _ClassVar[SessionState]
    SESSION_STATE_SUSPENDED: _ClassVar[SessionState]
    SESSION_STATE_TERMINATED: _ClassVar[SessionState]
SESSION_STATE_UNSPECIFIED: SessionState
SESSION_STATE_CREATED: SessionState
SESSION_STATE_ACTIVE: SessionState
SESSION_STATE_SUSPENDING: SessionState
SESSION_STATE_SUSPENDED: SessionState
SESSION_STATE_TERMINATED: SessionState

class Session(_message.Message):
    __slots__ = ("id", "agent_id", "agent_path", "state", "provider", "model", "create_time", "suspend_time", "provider_state_size", "event_count", "last_sequence", "sandbox")
    ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_PATH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_STATE_SIZE_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    id: str
    agent_id: str
    agent_path: str
    state: SessionState
    provider: str
    model: str
    create_time: _timestamp_pb2.Timestamp
    suspend_time: _timestamp_pb2.Timestamp
    provider_state_size: int
    event_count: int
    last_sequence: int
    sandbox: _sandbox_pb2.SandboxStatus
    def __init__(self, id: _Optional[str] = ..., agent_id: _Optional[str] = ..., agent_path: _Optional[str] = ..., state: _Optional[_Union[SessionState, str]] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., suspend_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., provider_state_size: _Optional[int] = ..., event_count: _Optional[int] = ..., last_sequence: _Optional[int] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxStatus, _Mapping]] = ...) -> None: ...
