import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from substrat.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_MODE_UNSPECIFIED: _ClassVar[LinkMode]
    LINK_MODE_READ_ONLY: _ClassVar[LinkMode]
    LINK_MODE_READ_WRITE: _ClassVar[LinkMode]
LINK_MODE_UNSPECIFIED: LinkMode
LINK_MODE_READ_ONLY: LinkMode
LINK_MODE_READ_WRITE: LinkMode

class Workspace(_message.Message):
    __slots__ = ("id", "name", "parent_id", "root", "links", "agent_ids", "create_time", "network", "env", "limits", "view", "git", "owner_id", "limits_in_force", "sandbox")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    GIT_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    parent_id: str
    root: str
    links: _containers.RepeatedCompositeFieldContainer[Link]
    agent_ids: _containers.RepeatedScalarFieldContainer[str]
    create_time: _timestamp_pb2.Timestamp
    network: bool
    env: _containers.ScalarMap[str, str]
    limits: WorkspaceLimits
    view: WorkspaceView
    git: WorkspaceGit
    owner_id: str
    limits_in_force: _containers.RepeatedScalarFieldContainer[str]
    sandbox: _sandbox_pb2.SandboxStatus
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., parent_id: _Optional[str] = ..., root: _Optional[str] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., agent_ids: _Optional[_Iterable[str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., network: _Optional[bool] = ..., env: _Optional[_Mapping[str, str]] = ..., limits: _Optional[_Union[WorkspaceLimits, _Mapping]] = ..., view: _Optional[_Union[WorkspaceView, _Mapping]] = ..., git: _Optional[_Union[WorkspaceGit, _Mapping]] = ..., owner_id: _Optional[str] = ..., limits_in_force: _Optional[_Iterable[str]] = ..., sandbox: _Optional[_Union[_sandbox_pb2.SandboxStatus, _Mapping]] = ...) -> None: ...

class WorkspaceLimits(_message.Message):
    __slots__ = ("memory_bytes", "cpu_millis", "processes", "open_files", "file_size_bytes", "disk_bytes")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLIS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    cpu_millis: int
    processes: int
    open_files: int
    file_size_bytes: int
    disk_bytes: int
    def __init__(self, memory_bytes: _Optional[int] = ..., cpu_millis: _Optional[int] = ..., processes: _Optional[int] = ..., open_files: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class WorkspaceView(_message.Message):
    __slots__ = ("workspace_id", "subdir", "mode")
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBDIR_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    subdir: str
    mode: LinkMode
    def __init__(self, workspace_id: _Optional[str] = ..., subdir: _Optional[str] = ..., mode: _Optional[_Union[LinkMode, str]] = ...) -> None: ...

class WorkspaceGit(_message.Message):
    __slots__ = ("repo", "branch", "created_branch")
    REPO_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CREATED_BRANCH_FIELD_NUMBER: _ClassVar[int]
    repo: str
    branch: str
    created_branch: bool
    def __init__(self, repo: _Optional[str] = ..., branch: _Optional[str] = ..., created_branch: _Optional[bool] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("host_path", "mount_path", "mode", "via_id")
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    VIA_ID_FIELD_NUMBER: _ClassVar[int]
    host_path: str
    mount_path: str
    mode: LinkMode
    via_id: str
    def __init__(self, host_path: _Optional[str] = ..., mount_path: _Optional[str] = ..., mode: _Optional[_Union[LinkMode, str]] = ..., via_id: _Optional[str] = ...) -> None: ...
