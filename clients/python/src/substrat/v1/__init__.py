"""The schema substrat.v1: messages in `*_pb2`, stubs in `*_service_pb2_grpc`."""
