from substrat.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Provider(_message.Message):
    __slots__ = ("name", "description", "version", "available", "problem", "capabilities", "slot_limit", "slots_held", "slots_wanted", "sandbox", "kind", "facts", "fallback")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    SLOT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_HELD_FIELD_NUMBER: _ClassVar[int]
    SLOTS_WANTED_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    version: str
    available: bool
    problem: str
    capabilities: ProviderCapabilities
    slot_limit: int
    slots_held: int
    slots_wanted: int
    sandbox: _sandbox_pb2.SandboxStatus
    kind: str
    facts: _containers.RepeatedCompositeFieldContainer[ProviderFact]
    fallback: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., version: _Optional[str] = ..., available: _Optional[bool] = ..., problem: _Optional[str] = ..., capabilities: _Optional[_Union[ProviderCapabilities, _Mapping]] = ..., slot_limit: _Optional[int] = ..., slots_held: _Optional[int] = ..., slots_wanted: _Optional[int] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxStatus, _Mapping]] = ..., kind: _Optional[str] = ..., facts: _Optional[_Iterable[_Union[ProviderFact, _Mapping]]] = ..., fallback: _Optional[_Iterable[str]] = ...) -> None: ...

class ProviderFact(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("id", "label", "context_tokens")
    ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    id: str
    label: str
    context_tokens: int
    def __init__(self, id: _Optional[str] = ..., label: _Optional[str] = ..., context_tokens: _Optional[int] = ...) -> None: ...

class ProviderCapabilities(_message.Message):
    __slots__ = ("keeps_history", "native_tools", "tool_socket")
    KEEPS_HISTORY_FIELD_NUMBER: _ClassVar[int]
    NATIVE_TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_SOCKET_FIELD_NUMBER: _ClassVar[int]
    keeps_history: bool
    native_tools: bool
    tool_socket: bool
    def __init__(self, keeps_history: _Optional[bool] = ..., native_tools: _Optional[bool] = ..., tool_socket: _Optional[bool] = ...) -> None: ...
