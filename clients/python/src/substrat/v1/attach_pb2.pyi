import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from substrat.v1 import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OutputKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_KIND_UNSPECIFIED: _ClassVar[OutputKind]
    OUTPUT_KIND_TEXT: _ClassVar[OutputKind]
    OUTPUT_KIND_THINKING: _ClassVar[OutputKind]

class TurnOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_OUTCOME_UNSPECIFIED: _ClassVar[TurnOutcome]
    TURN_OUTCOME_COMPLETED: _ClassVar[TurnOutcome]
    TURN_OUTCOME_FAILED: _ClassVar[TurnOutcome]
    TURN_OUTCOME_CANCELLED: _ClassVar[TurnOutcome]
    TURN_OUTCOME_INTERRUPTED: _ClassVar[TurnOutcome]
OUTPUT_KIND_UNSPECIFIED: OutputKind
OUTPUT_KIND_TEXT: OutputKind
OUTPUT_KIND_THINKING: OutputKind
TURN_OUTCOME_UNSPECIFIED: TurnOutcome
TURN_OUTCOME_COMPLETED: TurnOutcome
TURN_OUTCOME_FAILED: TurnOutcome
TURN_OUTCOME_CANCELLED: TurnOutcome
TURN_OUTCOME_INTERRUPTED: TurnOutcome

class AttachOpen(_message.Message):
    __slots__ = ("agent", "tree", "after_sequence", "last_turns", "seen_turn", "seen_deltas", "answers_permissions")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TURNS_FIELD_NUMBER: _ClassVar[int]
    SEEN_TURN_FIELD_NUMBER: _ClassVar[int]
    SEEN_DELTAS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    tree: bool
    after_sequence: int
    last_turns: int
    seen_turn: int
    seen_deltas: int
    answers_permissions: bool
    def __init__(self, agent: _Optional[str] = ..., tree: _Optional[bool] = ..., after_sequence: _Optional[int] = ..., last_turns: _Optional[int] = ..., seen_turn: _Optional[int] = ..., seen_deltas: _Optional[int] = ..., answers_permissions: _Optional[bool] = ...) -> None: ...

class AttachInput(_message.Message):
    __slots__ = ("text", "request_id")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    text: str
    request_id: str
    def __init__(self, text: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class AttachCancel(_message.Message):
    __slots__ = ("turn_id",)
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    def __init__(self, turn_id: _Optional[str] = ...) -> None: ...

class PermissionDecision(_message.Message):
    __slots__ = ("permission_id", "verdict", "reason", "request_id")
    PERMISSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    permission_id: str
    verdict: _agent_pb2.PermissionVerdict
    reason: str
    request_id: str
    def __init__(self, permission_id: _Optional[str] = ..., verdict: _Optional[_Union[_agent_pb2.PermissionVerdict, str]] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Attached(_message.Message):
    __slots__ = ("agent", "cursor", "daemon_start_time", "permissions")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    DAEMON_START_TIME_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    cursor: int
    daemon_start_time: _timestamp_pb2.Timestamp
    permissions: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Permission]
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ..., cursor: _Optional[int] = ..., daemon_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., permissions: _Optional[_Iterable[_Union[_agent_pb2.Permission, _Mapping]]] = ...) -> None: ...

class TurnStarted(_message.Message):
    __slots__ = ("agent_id", "turn_id", "prompt")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    prompt: str
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., prompt: _Optional[str] = ...) -> None: ...

class OutputDelta(_message.Message):
    __slots__ = ("turn", "index", "kind", "text")
    TURN_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    turn: int
    index: int
    kind: OutputKind
    text: str
    def __init__(self, turn: _Optional[int] = ..., index: _Optional[int] = ..., kind: _Optional[_Union[OutputKind, str]] = ..., text: _Optional[str] = ...) -> None: ...

class OutputReplaced(_message.Message):
    __slots__ = ("turn", "from_index", "text", "kind", "to_index")
    TURN_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TO_INDEX_FIELD_NUMBER: _ClassVar[int]
    turn: int
    from_index: int
    text: str
    kind: OutputKind
    to_index: int
    def __init__(self, turn: _Optional[int] = ..., from_index: _Optional[int] = ..., text: _Optional[str] = ..., kind: _Optional[_Union[OutputKind, str]] = ..., to_index: _Optional[int] = ...) -> None: ...

class ToolCallStarted(_message.Message):
    __slots__ = ("agent_id", "turn_id", "call_id", "tool", "arguments", "native")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    call_id: str
    tool: str
    arguments: _struct_pb2.Struct
    native: bool
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., call_id: _Optional[str] = ..., tool: _Optional[str] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., native: _Optional[bool] = ...) -> None: ...

class ToolCallFinished(_message.Message):
    __slots__ = ("agent_id", "turn_id", "call_id", "tool", "result", "error", "native")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    call_id: str
    tool: str
    result: _struct_pb2.Value
    error: str
    native: bool
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., call_id: _Optional[str] = ..., tool: _Optional[str] = ..., result: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., error: _Optional[str] = ..., native: _Optional[bool] = ...) -> None: ...

class MessageSeen(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _agent_pb2.Message
    def __init__(self, message: _Optional[_Union[_agent_pb2.Message, _Mapping]] = ...) -> None: ...

class TurnEnded(_message.Message):
    __slots__ = ("agent_id", "turn_id", "outcome", "response", "error", "error_class")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    outcome: TurnOutcome
    response: str
    error: str
    error_class: str
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., outcome: _Optional[_Union[TurnOutcome, str]] = ..., response: _Optional[str] = ..., error: _Optional[str] = ..., error_class: _Optional[str] = ...) -> None: ...

class StateChanged(_message.Message):
    __slots__ = ("agent", "event")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    event: str
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ..., event: _Optional[str] = ...) -> None: ...

class ProcessNotice(_message.Message):
    __slots__ = ("agent_id", "turn_id", "event", "text")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    event: str
    text: str
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., event: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class PermissionRequested(_message.Message):
    __slots__ = ("permission",)
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    permission: _agent_pb2.Permission
    def __init__(self, permission: _Optional[_Union[_agent_pb2.Permission, _Mapping]] = ...) -> None: ...

class PermissionResolved(_message.Message):
    __slots__ = ("agent_id", "turn_id", "permission_id", "verdict", "by", "reason")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turn_id: str
    permission_id: str
    verdict: _agent_pb2.PermissionVerdict
    by: str
    reason: str
    def __init__(self, agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., permission_id: _Optional[str] = ..., verdict: _Optional[_Union[_agent_pb2.PermissionVerdict, str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AgentCrashed(_message.Message):
    __slots__ = ("agent_id", "reason", "recovered")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    reason: str
    recovered: bool
    def __init__(self, agent_id: _Optional[str] = ..., reason: _Optional[str] = ..., recovered: _Optional[bool] = ...) -> None: ...

class DaemonRecovered(_message.Message):
    __slots__ = ("interrupted_turns", "returned_messages")
    INTERRUPTED_TURNS_FIELD_NUMBER: _ClassVar[int]
    RETURNED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    interrupted_turns: int
    returned_messages: int
    def __init__(self, interrupted_turns: _Optional[int] = ..., returned_messages: _Optional[int] = ...) -> None: ...

class DaemonDraining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Lagged(_message.Message):
    __slots__ = ("turn", "from_index", "to_index")
    TURN_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    TO_INDEX_FIELD_NUMBER: _ClassVar[int]
    turn: int
    from_index: int
    to_index: int
    def __init__(self, turn: _Optional[int] = ..., from_index: _Optional[int] = ..., to_index: _Optional[int] = ...) -> None: ...

class InputResult(_message.Message):
    __slots__ = ("request_id", "message_id", "reason", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    message_id: str
    reason: str
    error: str
    def __init__(self, request_id: _Optional[str] = ..., message_id: _Optional[str] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...
