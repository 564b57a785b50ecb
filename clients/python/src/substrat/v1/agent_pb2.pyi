import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from substrat.v1 import budget_pb2 as _budget_pb2
from substrat.v1 import sandbox_pb2 as _sandbox_pb2
from substrat.v1 import workspace_pb2 as _workspace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AGENT_STATE_UNSPECIFIED: _ClassVar[AgentState]
    AGENT_STATE_IDLE: _ClassVar[AgentState]
    AGENT_STATE_BUSY: _ClassVar[AgentState]
    AGENT_STATE_WAITING: _ClassVar[AgentState]
    AGENT_STATE_TERMINATED: _ClassVar[AgentState]

class MessageKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_KIND_UNSPECIFIED: _ClassVar[MessageKind]
    MESSAGE_KIND_REQUEST: _ClassVar[MessageKind]
    MESSAGE_KIND_RESPONSE: _ClassVar[MessageKind]
    MESSAGE_KIND_NOTIFICATION: _ClassVar[MessageKind]
    MESSAGE_KIND_MULTICAST: _ClassVar[MessageKind]
    MESSAGE_KIND_ERROR: _ClassVar[MessageKind]

class PermissionVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERMISSION_VERDICT_UNSPECIFIED: _ClassVar[PermissionVerdict]
    PERMISSION_VERDICT_ALLOW: _ClassVar[PermissionVerdict]
    PERMISSION_VERDICT_ALWAYS: _ClassVar[PermissionVerdict]
    PERMISSION_VERDICT_DENY: _ClassVar[PermissionVerdict]
AGENT_STATE_UNSPECIFIED: AgentState
AGENT_STATE_IDLE: AgentState
AGENT_STATE_BUSY: AgentState
AGENT_STATE_WAITING: AgentState
AGENT_STATE_TERMINATED: AgentState
MESSAGE_KIND_UNSPECIFIED: MessageKind
MESSAGE_KIND_REQUEST: MessageKind
MESSAGE_KIND_RESPONSE: MessageKind
MESSAGE_KIND_NOTIFICATION: MessageKind
MESSAGE_KIND_MULTICAST: MessageKind
MESSAGE_KIND_ERROR: MessageKind
PERMISSION_VERDICT_UNSPECIFIED: PermissionVerdict
PERMISSION_VERDICT_ALLOW: PermissionVerdict
PERMISSION_VERDICT_ALWAYS: PermissionVerdict
PERMISSION_VERDICT_DENY: PermissionVerdict

class Agent(_message.Message):
    __slots__ = ("id", "name", "path", "parent_id", "session_id", "provider", "model", "role", "instructions", "workspace_id", "state", "gated", "permits", "inbox_size", "child_count", "metadata", "create_time", "activity_time", "turn_id", "queued", "turns", "last_sequence", "workspace_subdir", "workspace_access", "usage", "tree_usage", "budget", "tree_budget", "budget_excess", "sandbox", "open_permissions")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GATED_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    INBOX_SIZE_FIELD_NUMBER: _ClassVar[int]
    CHILD_COUNT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_TIME_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_SUBDIR_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ACCESS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TREE_USAGE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    TREE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    BUDGET_EXCESS_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    OPEN_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    path: str
    parent_id: str
    session_id: str
    provider: str
    model: str
    role: str
    instructions: str
    workspace_id: str
    state: AgentState
    gated: bool
    permits: int
    inbox_size: int
    child_count: int
    metadata: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    activity_time: _timestamp_pb2.Timestamp
    turn_id: str
    queued: bool
    turns: TurnCounts
    last_sequence: int
    workspace_subdir: str
    workspace_access: _workspace_pb2.LinkMode
    usage: _budget_pb2.Usage
    tree_usage: _budget_pb2.Usage
    budget: _budget_pb2.Budget
    tree_budget: _budget_pb2.Budget
    budget_excess: _budget_pb2.BudgetExcess
    sandbox: _sandbox_pb2.SandboxStatus
    open_permissions: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., path: _Optional[str] = ..., parent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., role: _Optional[str] = ..., instructions: _Optional[str] = ..., workspace_id: _Optional[str] = ..., state: _Optional[_Union[AgentState, str]] = ..., gated: _Optional[bool] = ..., permits: _Optional[int] = ..., inbox_size: _Optional[int] = ..., child_count: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., activity_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., turn_id: _Optional[str] = ..., queued: _Optional[bool] = ..., turns: _Optional[_Union[TurnCounts, _Mapping]] = ..., last_sequence: _Optional[int] = ..., workspace_subdir: _Optional[str] = ..., workspace_access: _Optional[_Union[_workspace_pb2.LinkMode, str]] = ..., usage: _Optional[_Union[_budget_pb2.Usage, _Mapping]] = ..., tree_usage: _Optional[_Union[_budget_pb2.Usage, _Mapping]] = ..., budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ..., tree_budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ..., budget_excess: _Optional[_Union[_budget_pb2.BudgetExcess, _Mapping]] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxStatus, _Mapping]] = ..., open_permissions: _Optional[int] = ...) -> None: ...

class TurnCounts(_message.Message):
    __slots__ = ("completed", "failed", "cancelled", "interrupted")
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    completed: int
    failed: int
    cancelled: int
    interrupted: int
    def __init__(self, completed: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., interrupted: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "sender_id", "sender", "recipient_id", "recipient", "kind", "text", "reply_to", "metadata", "create_time", "sequence", "set_aside")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    id: str
    sender_id: str
    sender: str
    recipient_id: str
    recipient: str
    kind: MessageKind
    text: str
    reply_to: str
    metadata: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    sequence: int
    set_aside: bool
    def __init__(self, id: _Optional[str] = ..., sender_id: _Optional[str] = ..., sender: _Optional[str] = ..., recipient_id: _Optional[str] = ..., recipient: _Optional[str] = ..., kind: _Optional[_Union[MessageKind, str]] = ..., text: _Optional[str] = ..., reply_to: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sequence: _Optional[int] = ..., set_aside: _Optional[bool] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("id", "start_time", "sequence", "message_ids", "open_tools", "waiting_for", "cancelling", "usage", "native_tools", "stall")
    ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_TOOLS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    CANCELLING_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    NATIVE_TOOLS_FIELD_NUMBER: _ClassVar[int]
    STALL_FIELD_NUMBER: _ClassVar[int]
    id: str
    start_time: _timestamp_pb2.Timestamp
    sequence: int
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    open_tools: _containers.RepeatedScalarFieldContainer[str]
    waiting_for: str
    cancelling: bool
    usage: _budget_pb2.Usage
    native_tools: _containers.RepeatedScalarFieldContainer[str]
    stall: Stall
    def __init__(self, id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sequence: _Optional[int] = ..., message_ids: _Optional[_Iterable[str]] = ..., open_tools: _Optional[_Iterable[str]] = ..., waiting_for: _Optional[str] = ..., cancelling: _Optional[bool] = ..., usage: _Optional[_Union[_budget_pb2.Usage, _Mapping]] = ..., native_tools: _Optional[_Iterable[str]] = ..., stall: _Optional[_Union[Stall, _Mapping]] = ...) -> None: ...

class Stall(_message.Message):
    __slots__ = ("start_time", "tool")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    start_time: _timestamp_pb2.Timestamp
    tool: str
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tool: _Optional[str] = ...) -> None: ...

class Permission(_message.Message):
    __slots__ = ("id", "agent_id", "turn_id", "call_id", "tool", "input", "options", "create_time")
    ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    agent_id: str
    turn_id: str
    call_id: str
    tool: str
    input: _struct_pb2.Value
    options: _containers.RepeatedCompositeFieldContainer[PermissionOption]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., agent_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., call_id: _Optional[str] = ..., tool: _Optional[str] = ..., input: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., options: _Optional[_Iterable[_Union[PermissionOption, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PermissionOption(_message.Message):
    __slots__ = ("id", "name", "kind")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    kind: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class Reminder(_message.Message):
    __slots__ = ("id", "reason", "due_time", "every_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    due_time: _timestamp_pb2.Timestamp
    every_seconds: int
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., every_seconds: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("id", "target", "transition", "once")
    ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    target: str
    transition: str
    once: bool
    def __init__(self, id: _Optional[str] = ..., target: _Optional[str] = ..., transition: _Optional[str] = ..., once: _Optional[bool] = ...) -> None: ...

class Multicast(_message.Message):
    __slots__ = ("id", "answered", "open", "end_time")
    ID_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    answered: int
    open: _containers.RepeatedScalarFieldContainer[str]
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., answered: _Optional[int] = ..., open: _Optional[_Iterable[str]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
