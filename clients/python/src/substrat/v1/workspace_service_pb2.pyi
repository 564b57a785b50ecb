from google.protobuf import field_mask_pb2 as _field_mask_pb2
from substrat.v1 import workspace_pb2 as _workspace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateWorkspaceRequest(_message.Message):
    __slots__ = ("name", "parent", "request_id", "network", "env", "limits", "git")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    GIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    parent: str
    request_id: str
    network: bool
    env: _containers.ScalarMap[str, str]
    limits: _workspace_pb2.WorkspaceLimits
    git: _workspace_pb2.WorkspaceGit
    def __init__(self, name: _Optional[str] = ..., parent: _Optional[str] = ..., request_id: _Optional[str] = ..., network: _Optional[bool] = ..., env: _Optional[_Mapping[str, str]] = ..., limits: _Optional[_Union[_workspace_pb2.WorkspaceLimits, _Mapping]] = ..., git: _Optional[_Union[_workspace_pb2.WorkspaceGit, _Mapping]] = ...) -> None: ...

class CreateWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class CreateViewRequest(_message.Message):
    __slots__ = ("workspace", "name", "subdir", "mode", "network", "request_id")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBDIR_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    name: str
    subdir: str
    mode: _workspace_pb2.LinkMode
    network: bool
    request_id: str
    def __init__(self, workspace: _Optional[str] = ..., name: _Optional[str] = ..., subdir: _Optional[str] = ..., mode: _Optional[_Union[_workspace_pb2.LinkMode, str]] = ..., network: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateViewResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class UpdateWorkspaceRequest(_message.Message):
    __slots__ = ("workspace", "network", "env", "unset_env", "limits", "update_mask", "request_id")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    UNSET_ENV_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    network: bool
    env: _containers.ScalarMap[str, str]
    unset_env: _containers.RepeatedScalarFieldContainer[str]
    limits: _workspace_pb2.WorkspaceLimits
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    def __init__(self, workspace: _Optional[str] = ..., network: _Optional[bool] = ..., env: _Optional[_Mapping[str, str]] = ..., unset_env: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[_workspace_pb2.WorkspaceLimits, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdateWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class GetWorkspaceRequest(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    def __init__(self, workspace: _Optional[str] = ...) -> None: ...

class GetWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class ListWorkspacesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListWorkspacesResponse(_message.Message):
    __slots__ = ("workspaces", "next_page_token")
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    workspaces: _containers.RepeatedCompositeFieldContainer[_workspace_pb2.Workspace]
    next_page_token: str
    def __init__(self, workspaces: _Optional[_Iterable[_Union[_workspace_pb2.Workspace, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class LinkDirectoryRequest(_message.Message):
    __slots__ = ("workspace", "host_path", "mount_path", "mode", "request_id")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    host_path: str
    mount_path: str
    mode: _workspace_pb2.LinkMode
    request_id: str
    def __init__(self, workspace: _Optional[str] = ..., host_path: _Optional[str] = ..., mount_path: _Optional[str] = ..., mode: _Optional[_Union[_workspace_pb2.LinkMode, str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class LinkDirectoryResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class UnlinkDirectoryRequest(_message.Message):
    __slots__ = ("workspace", "mount_path", "request_id")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    MOUNT_PATH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    mount_path: str
    request_id: str
    def __init__(self, workspace: _Optional[str] = ..., mount_path: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class UnlinkDirectoryResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class DeleteWorkspaceRequest(_message.Message):
    __slots__ = ("workspace", "request_id", "force")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    workspace: str
    request_id: str
    force: bool
    def __init__(self, workspace: _Optional[str] = ..., request_id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteWorkspaceResponse(_message.Message):
    __slots__ = ("workspace_id", "warning")
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    warning: str
    def __init__(self, workspace_id: _Optional[str] = ..., warning: _Optional[str] = ...) -> None: ...
