"""Implements grpc.reflection, by which tools such as grpcurl discover the services.

Versions 1 and 1alpha have the same messages.
"""

from typing import Any

from google.protobuf.descriptor import FileDescriptor

from broker.api.generated.messages import POOL, ServerReflectionRequest, ServerReflectionResponse, files
from broker.api.grpc.call import StreamingCall
from broker.api.grpc.errors import GRPC_STATUS
from broker.api.grpc.requests import decode_request


async def server_reflection(call: StreamingCall) -> None:
    async for body in call.requests():
        request = decode_request(ServerReflectionRequest, body)
        response = ServerReflectionResponse(valid_host=request.host, original_request=request)
        try:
            _answer(request, response)
        except KeyError as error:
            response.error_response.error_code = GRPC_STATUS["NOT_FOUND"]
            response.error_response.error_message = str(error.args[0])
        await call.send(response.SerializeToString())


def _answer(request: Any, response: Any) -> None:
    """Raises KeyError for what does not exist."""
    match request.WhichOneof("message_request"):
        case "list_services":
            names = sorted(f"{file.package}.{service.name}" for file in files() for service in file.service)
            for name in names:
                response.list_services_response.service.add(name=name)
        case "file_by_filename":
            _add_files(POOL.FindFileByName(request.file_by_filename), response)
        case "file_containing_symbol":
            _add_files(_file_of(request.file_containing_symbol), response)
        case _:
            raise KeyError("There are no extensions here.")


def _file_of(symbol: str) -> FileDescriptor:
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:  # the pool does not know methods by their names
        service, _, method = symbol.rpartition(".")
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file


def _add_files(file: FileDescriptor, response: Any) -> None:
    """Adds a file and all that it needs, each once."""
    found: dict[str, FileDescriptor] = {}
    waiting = [file]
    while waiting:
        next_one = waiting.pop()
        if next_one.name not in found:
            found[next_one.name] = next_one
            waiting += next_one.dependencies
    response.file_descriptor_response.file_descriptor_proto.extend(f.serialized_pb for f in found.values())
