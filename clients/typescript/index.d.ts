import type { Transport } from "@connectrpc/connect";
import type { ErrorInfo } from "./gen/google/rpc/error_details_pb.js";

export { Code, ConnectError, createClient } from "@connectrpc/connect";
export type { ErrorInfo };

/** A transport for `createClient` that reaches the daemon at the path of its Unix socket. */
export declare function createUnixTransport(path: string): Transport;

/** Why the daemon refused, such as the reason `AGENT_NOT_FOUND`; undefined if it does not say. */
export declare function errorInfo(error: unknown): ErrorInfo | undefined;
