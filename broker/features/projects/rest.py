"""The list of projects, in the form of Resource Manager.

https://cloud.google.com/resource-manager/reference/rest/v3/projects/search
"""

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.features.projects.service import ProjectService
from broker.model.names import leaf
from broker.model.page import parse_page


async def list_projects(service: ProjectService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    projects, token = await service.list_projects(call.caller, page)
    return encode_list("projects", [{"name": name, "projectId": leaf(name)} for name in projects], token)
