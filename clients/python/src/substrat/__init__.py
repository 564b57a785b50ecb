"""Client of the Substrat daemon. The API itself is in `substrat.v1`."""

from os import PathLike, fspath
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

__all__ = ["aio_channel", "channel", "error_info"]

_OPTIONS = [
    # gRPC would name the server by the socket's path, which the daemon's HTTP layer refuses.
    ("grpc.default_authority", "localhost"),
    # A response can be larger than the 4 MiB that gRPC takes by default.
    ("grpc.max_receive_message_length", -1),
]


def channel(socket: str | PathLike[str]) -> grpc.Channel:
    """Opens a channel to the daemon at the path of its Unix socket."""
    return grpc.insecure_channel(f"unix:{fspath(socket)}", options=_OPTIONS)


def aio_channel(socket: str | PathLike[str]) -> grpc.aio.Channel:
    """Opens a channel for asyncio to the daemon at the path of its Unix socket."""
    return grpc.aio.insecure_channel(f"unix:{fspath(socket)}", options=_OPTIONS)


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """Why the daemon refused, such as the reason `AGENT_NOT_FOUND`; None if it does not say."""
    info = error_details_pb2.ErrorInfo()
    # Pairs, which the published types do not say.
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return info
    return None
