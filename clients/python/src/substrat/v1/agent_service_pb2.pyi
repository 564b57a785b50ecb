import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from substrat.v1 import agent_pb2 as _agent_pb2
from substrat.v1 import budget_pb2 as _budget_pb2
from substrat.v1 import event_pb2 as _event_pb2
from substrat.v1 import workspace_pb2 as _workspace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateAgentRequest(_message.Message):
    __slots__ = ("name", "parent", "provider", "model", "instructions", "role", "workspace", "metadata", "request_id", "workspace_subdir", "workspace_access", "budget", "tree_budget")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_SUBDIR_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ACCESS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    TREE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    name: str
    parent: str
    provider: str
    model: str
    instructions: str
    role: str
    workspace: str
    metadata: _containers.ScalarMap[str, str]
    request_id: str
    workspace_subdir: str
    workspace_access: _workspace_pb2.LinkMode
    budget: _budget_pb2.Budget
    tree_budget: _budget_pb2.Budget
    def __init__(self, name: _Optional[str] = ..., parent: _Optional[str] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., instructions: _Optional[str] = ..., role: _Optional[str] = ..., workspace: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., request_id: _Optional[str] = ..., workspace_subdir: _Optional[str] = ..., workspace_access: _Optional[_Union[_workspace_pb2.LinkMode, str]] = ..., budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ..., tree_budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ...) -> None: ...

class CreateAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class GetAgentRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    def __init__(self, agent: _Optional[str] = ...) -> None: ...

class GetAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "show_terminated")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SHOW_TERMINATED_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    show_terminated: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., show_terminated: _Optional[bool] = ...) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents", "next_page_token")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Agent]
    next_page_token: str
    def __init__(self, agents: _Optional[_Iterable[_Union[_agent_pb2.Agent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateAgentRequest(_message.Message):
    __slots__ = ("agent", "instructions", "role", "metadata", "update_mask", "request_id", "budget", "tree_budget")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    TREE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    agent: str
    instructions: str
    role: str
    metadata: _containers.ScalarMap[str, str]
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    budget: _budget_pb2.Budget
    tree_budget: _budget_pb2.Budget
    def __init__(self, agent: _Optional[str] = ..., instructions: _Optional[str] = ..., role: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ..., budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ..., tree_budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ...) -> None: ...

class UpdateAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class SendMessageRequest(_message.Message):
    __slots__ = ("agent", "text", "no_wait", "metadata", "request_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NO_WAIT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    text: str
    no_wait: bool
    metadata: _containers.ScalarMap[str, str]
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., text: _Optional[str] = ..., no_wait: _Optional[bool] = ..., metadata: _Optional[_Mapping[str, str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class SendMessageResponse(_message.Message):
    __slots__ = ("message_id", "answered", "answer", "turn_id", "sequence")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    answered: bool
    answer: str
    turn_id: str
    sequence: int
    def __init__(self, message_id: _Optional[str] = ..., answered: _Optional[bool] = ..., answer: _Optional[str] = ..., turn_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class CancelTurnRequest(_message.Message):
    __slots__ = ("agent", "turn_id", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    turn_id: str
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., turn_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class CancelTurnResponse(_message.Message):
    __slots__ = ("turn_id",)
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    def __init__(self, turn_id: _Optional[str] = ...) -> None: ...

class InspectAgentRequest(_message.Message):
    __slots__ = ("agent", "recent")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    recent: int
    def __init__(self, agent: _Optional[str] = ..., recent: _Optional[int] = ...) -> None: ...

class InspectAgentResponse(_message.Message):
    __slots__ = ("agent", "turn", "inbox", "children", "recent", "reminders", "subscriptions", "multicasts", "permissions")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    REMINDERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    MULTICASTS_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    turn: _agent_pb2.Turn
    inbox: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Message]
    children: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Agent]
    recent: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    reminders: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Reminder]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Subscription]
    multicasts: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Multicast]
    permissions: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Permission]
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ..., turn: _Optional[_Union[_agent_pb2.Turn, _Mapping]] = ..., inbox: _Optional[_Iterable[_Union[_agent_pb2.Message, _Mapping]]] = ..., children: _Optional[_Iterable[_Union[_agent_pb2.Agent, _Mapping]]] = ..., recent: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ..., reminders: _Optional[_Iterable[_Union[_agent_pb2.Reminder, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[_agent_pb2.Subscription, _Mapping]]] = ..., multicasts: _Optional[_Iterable[_Union[_agent_pb2.Multicast, _Mapping]]] = ..., permissions: _Optional[_Iterable[_Union[_agent_pb2.Permission, _Mapping]]] = ...) -> None: ...

class GateAgentRequest(_message.Message):
    __slots__ = ("agent", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class GateAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class UngateAgentRequest(_message.Message):
    __slots__ = ("agent", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class UngateAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class PermitTurnRequest(_message.Message):
    __slots__ = ("agent", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class PermitTurnResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class RetryMessagesRequest(_message.Message):
    __slots__ = ("agent", "message_ids", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class RetryMessagesResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class DiscardMessagesRequest(_message.Message):
    __slots__ = ("agent", "message_ids", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class DiscardMessagesResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class AnswerPermissionRequest(_message.Message):
    __slots__ = ("agent", "permission_id", "verdict", "reason", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    permission_id: str
    verdict: _agent_pb2.PermissionVerdict
    reason: str
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., permission_id: _Optional[str] = ..., verdict: _Optional[_Union[_agent_pb2.PermissionVerdict, str]] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class AnswerPermissionResponse(_message.Message):
    __slots__ = ("permission_id",)
    PERMISSION_ID_FIELD_NUMBER: _ClassVar[int]
    permission_id: str
    def __init__(self, permission_id: _Optional[str] = ...) -> None: ...

class TerminateAgentRequest(_message.Message):
    __slots__ = ("agent", "recursive", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    recursive: bool
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., recursive: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class TerminateAgentResponse(_message.Message):
    __slots__ = ("agent_ids",)
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    agent_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListInboxRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "wait")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    wait: _duration_pb2.Duration
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ListInboxResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Message]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_agent_pb2.Message, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AckInboxRequest(_message.Message):
    __slots__ = ("message_ids", "request_id")
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class AckInboxResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: int
    def __init__(self, removed: _Optional[int] = ...) -> None: ...
