from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecSignal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXEC_SIGNAL_UNSPECIFIED: _ClassVar[ExecSignal]
    EXEC_SIGNAL_INTERRUPT: _ClassVar[ExecSignal]
    EXEC_SIGNAL_TERMINATE: _ClassVar[ExecSignal]
    EXEC_SIGNAL_KILL: _ClassVar[ExecSignal]
EXEC_SIGNAL_UNSPECIFIED: ExecSignal
EXEC_SIGNAL_INTERRUPT: ExecSignal
EXEC_SIGNAL_TERMINATE: ExecSignal
EXEC_SIGNAL_KILL: ExecSignal

class ExecOpen(_message.Message):
    __slots__ = ("workspace", "agent", "command", "directory", "environment", "terminal")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    agent: str
    command: _containers.RepeatedScalarFieldContainer[str]
    directory: str
    environment: _containers.ScalarMap[str, str]
    terminal: TerminalSize
    def __init__(self, workspace: _Optional[str] = ..., agent: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., directory: _Optional[str] = ..., environment: _Optional[_Mapping[str, str]] = ..., terminal: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class ExecStarted(_message.Message):
    __slots__ = ("pid", "unsandboxed_reason")
    PID_FIELD_NUMBER: _ClassVar[int]
    UNSANDBOXED_REASON_FIELD_NUMBER: _ClassVar[int]
    pid: int
    unsandboxed_reason: str
    def __init__(self, pid: _Optional[int] = ..., unsandboxed_reason: _Optional[str] = ...) -> None: ...

class ExecExited(_message.Message):
    __slots__ = ("code", "signal", "limits_hit")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_HIT_FIELD_NUMBER: _ClassVar[int]
    code: int
    signal: int
    limits_hit: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[int] = ..., signal: _Optional[int] = ..., limits_hit: _Optional[_Iterable[str]] = ...) -> None: ...
