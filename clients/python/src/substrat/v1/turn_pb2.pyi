import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TurnState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_STATE_UNSPECIFIED: _ClassVar[TurnState]
    TURN_STATE_RUNNING: _ClassVar[TurnState]
    TURN_STATE_COMPLETED: _ClassVar[TurnState]
    TURN_STATE_FAILED: _ClassVar[TurnState]
    TURN_STATE_CANCELLED: _ClassVar[TurnState]
    TURN_STATE_INTERRUPTED: _ClassVar[TurnState]

class HashMatch(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HASH_MATCH_UNSPECIFIED: _ClassVar[HashMatch]
    HASH_MATCH_MATCHES: _ClassVar[HashMatch]
    HASH_MATCH_DIFFERS: _ClassVar[HashMatch]
    HASH_MATCH_UNKNOWN: _ClassVar[HashMatch]
TURN_STATE_UNSPECIFIED: TurnState
TURN_STATE_RUNNING: TurnState
TURN_STATE_COMPLETED: TurnState
TURN_STATE_FAILED: TurnState
TURN_STATE_CANCELLED: TurnState
TURN_STATE_INTERRUPTED: TurnState
HASH_MATCH_UNSPECIFIED: HashMatch
HASH_MATCH_MATCHES: HashMatch
HASH_MATCH_DIFFERS: HashMatch
HASH_MATCH_UNKNOWN: HashMatch

class TurnSummary(_message.Message):
    __slots__ = ("turn_id", "agent_id", "agent_path", "session_id", "state", "start_time", "end_time", "sequence", "end_sequence", "source", "provider", "model", "prompt_start", "attempt_count", "tool_call_count", "replayable", "reason", "crash_point")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_PATH_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    END_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_START_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLAYABLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CRASH_POINT_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    agent_id: str
    agent_path: str
    session_id: str
    state: TurnState
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    sequence: int
    end_sequence: int
    source: str
    provider: str
    model: str
    prompt_start: str
    attempt_count: int
    tool_call_count: int
    replayable: bool
    reason: str
    crash_point: CrashPoint
    def __init__(self, turn_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., agent_path: _Optional[str] = ..., session_id: _Optional[str] = ..., state: _Optional[_Union[TurnState, str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sequence: _Optional[int] = ..., end_sequence: _Optional[int] = ..., source: _Optional[str] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., prompt_start: _Optional[str] = ..., attempt_count: _Optional[int] = ..., tool_call_count: _Optional[int] = ..., replayable: _Optional[bool] = ..., reason: _Optional[str] = ..., crash_point: _Optional[_Union[CrashPoint, _Mapping]] = ...) -> None: ...

class CrashPoint(_message.Message):
    __slots__ = ("stage", "recovery", "agent")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    stage: str
    recovery: str
    agent: str
    def __init__(self, stage: _Optional[str] = ..., recovery: _Optional[str] = ..., agent: _Optional[str] = ...) -> None: ...

class ExecutionRecord(_message.Message):
    __slots__ = ("header", "envelope", "router_decision", "events", "omitted_event_count", "final_response", "hash_match", "turn", "envelope_json", "processes")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    ROUTER_DECISION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OMITTED_EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    FINAL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    HASH_MATCH_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_JSON_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    header: ExecutionHeader
    envelope: _struct_pb2.Struct
    router_decision: RouterDecision
    events: _containers.RepeatedCompositeFieldContainer[ExecutionEvent]
    omitted_event_count: int
    final_response: FinalResponse
    hash_match: HashMatch
    turn: TurnSummary
    envelope_json: str
    processes: ProcessReport
    def __init__(self, header: _Optional[_Union[ExecutionHeader, _Mapping]] = ..., envelope: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., router_decision: _Optional[_Union[RouterDecision, _Mapping]] = ..., events: _Optional[_Iterable[_Union[ExecutionEvent, _Mapping]]] = ..., omitted_event_count: _Optional[int] = ..., final_response: _Optional[_Union[FinalResponse, _Mapping]] = ..., hash_match: _Optional[_Union[HashMatch, str]] = ..., turn: _Optional[_Union[TurnSummary, _Mapping]] = ..., envelope_json: _Optional[str] = ..., processes: _Optional[_Union[ProcessReport, _Mapping]] = ...) -> None: ...

class ProcessReport(_message.Message):
    __slots__ = ("stderr", "stderr_bytes", "exits", "limits", "unsandboxed")
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    UNSANDBOXED_FIELD_NUMBER: _ClassVar[int]
    stderr: str
    stderr_bytes: int
    exits: _containers.RepeatedCompositeFieldContainer[ProcessExit]
    limits: _containers.RepeatedScalarFieldContainer[str]
    unsandboxed: str
    def __init__(self, stderr: _Optional[str] = ..., stderr_bytes: _Optional[int] = ..., exits: _Optional[_Iterable[_Union[ProcessExit, _Mapping]]] = ..., limits: _Optional[_Iterable[str]] = ..., unsandboxed: _Optional[str] = ...) -> None: ...

class ProcessExit(_message.Message):
    __slots__ = ("pid", "status", "reason")
    PID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pid: int
    status: str
    reason: str
    def __init__(self, pid: _Optional[int] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ExecutionHeader(_message.Message):
    __slots__ = ("execution_id", "created_utc", "envelope_hash", "replayable", "reason")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_UTC_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_HASH_FIELD_NUMBER: _ClassVar[int]
    REPLAYABLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    created_utc: _timestamp_pb2.Timestamp
    envelope_hash: str
    replayable: bool
    reason: str
    def __init__(self, execution_id: _Optional[str] = ..., created_utc: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., envelope_hash: _Optional[str] = ..., replayable: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class RouterDecision(_message.Message):
    __slots__ = ("agent", "intent", "reason", "timestamp")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    agent: str
    intent: str
    reason: str
    timestamp: _timestamp_pb2.Timestamp
    def __init__(self, agent: _Optional[str] = ..., intent: _Optional[str] = ..., reason: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExecutionEvent(_message.Message):
    __slots__ = ("seq", "type", "payload", "timestamp", "source_sequence")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    type: str
    payload: _struct_pb2.Struct
    timestamp: _timestamp_pb2.Timestamp
    source_sequence: int
    def __init__(self, seq: _Optional[int] = ..., type: _Optional[str] = ..., payload: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., source_sequence: _Optional[int] = ...) -> None: ...

class FinalResponse(_message.Message):
    __slots__ = ("version", "status", "payload", "metadata", "error")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    version: str
    status: str
    payload: _struct_pb2.Struct
    metadata: _struct_pb2.Struct
    error: _struct_pb2.Struct
    def __init__(self, version: _Optional[str] = ..., status: _Optional[str] = ..., payload: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., error: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
