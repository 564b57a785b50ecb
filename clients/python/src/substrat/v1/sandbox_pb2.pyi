from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SandboxState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SANDBOX_STATE_UNSPECIFIED: _ClassVar[SandboxState]
    SANDBOX_STATE_IN_FORCE: _ClassVar[SandboxState]
    SANDBOX_STATE_OFF: _ClassVar[SandboxState]
    SANDBOX_STATE_UNAVAILABLE: _ClassVar[SandboxState]
    SANDBOX_STATE_NO_PROCESSES: _ClassVar[SandboxState]
SANDBOX_STATE_UNSPECIFIED: SandboxState
SANDBOX_STATE_IN_FORCE: SandboxState
SANDBOX_STATE_OFF: SandboxState
SANDBOX_STATE_UNAVAILABLE: SandboxState
SANDBOX_STATE_NO_PROCESSES: SandboxState

class SandboxStatus(_message.Message):
    __slots__ = ("state", "reason")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    state: SandboxState
    reason: str
    def __init__(self, state: _Optional[_Union[SandboxState, str]] = ..., reason: _Optional[str] = ...) -> None: ...
