import { connect } from "node:net";
import { ConnectError } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";

export { Code, ConnectError, createClient } from "@connectrpc/connect";

export function createUnixTransport(path) {
  return createGrpcTransport({
    // Names the server to itself; where it is, the socket says.
    baseUrl: "http://localhost",
    nodeOptions: { createConnection: () => connect(path) },
  });
}

export function errorInfo(error) {
  return ConnectError.from(error).findDetails(ErrorInfoSchema)[0];
}
