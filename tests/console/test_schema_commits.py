"""The page that commits a revision of a schema says what the API would say, before it is committed."""

import json

from tests.console.test_actions import AVRO, WIDER, act, hidden, look, note
from tests.console.test_quotas import notes
from tests.fixtures.access import guarded
from tests.fixtures.broker import Rest

OTHER = AVRO.replace('"a"', '"z"')


async def with_schema(rest: Rest, **fields: str) -> str:
    """Make a schema and a topic that has it; return the address of the form."""
    body = {"type": "AVRO", "definition": AVRO, **fields}
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=row", body)
    schema = f"{rest.project}/schemas/row"
    await rest.create_topic(schemaSettings={"schema": schema, "encoding": "JSON"})
    return f"/console/{schema}:commit"


def typed(definition: str) -> dict[str, str]:
    return {"type": "AVRO", "definition": definition}


async def test_a_compatible_revision_says_so_and_names_the_topics(rest: Rest) -> None:
    address = await with_schema(rest)
    page = await look(rest.client, address, typed(WIDER))
    assert "It is compatible with all revisions" in notes(page.text)
    assert f'href="/console/{rest.topic()}"' in page.text
    assert 'id="do"' in page.text
    assert (await act(rest.client, address, typed(WIDER))).status_code == 303


async def test_a_revision_that_would_be_refused_has_no_button_and_is_refused(rest: Rest) -> None:
    address = await with_schema(rest)
    page = await look(rest.client, address, typed(OTHER))
    assert "It would be refused: " in notes(page.text)
    assert 'id="do"' not in page.text
    refused = await rest.client.post(address, data={**typed(OTHER), **hidden(page.text)})
    assert refused.status_code == 400, refused.text
    assert OTHER in refused.text.replace("&#34;", '"')
    revisions = await rest.ok("GET", f"{rest.project}/schemas/row:listRevisions")
    assert len(revisions["schemas"]) == 1


async def test_a_revision_that_is_allowed_although_it_is_not_compatible_says_with_what(rest: Rest) -> None:
    address = await with_schema(rest, compatibility="NONE")
    page = await look(rest.client, address, typed(OTHER))
    assert "The compatibility NONE allows it, but it is not FULL_TRANSITIVE: " in notes(page.text)
    assert 'id="do"' in page.text


async def test_a_schema_that_somebody_else_has_changed_is_shown_again(rest: Rest) -> None:
    address = await with_schema(rest)
    shown = hidden((await look(rest.client, address, typed(WIDER))).text)
    await rest.ok("POST", f"{rest.project}/schemas/row:commit", {"schema": typed(WIDER)})
    refused = await rest.client.post(address, data={**typed(AVRO), **shown})
    assert refused.status_code == 409, refused.text
    assert note(refused.text).startswith("Nothing was done: it has changed since it was shown.")
    assert (await rest.client.post(address, data=typed(AVRO))).status_code == 400
    revisions = await rest.ok("GET", f"{rest.project}/schemas/row:listRevisions")
    assert len(revisions["schemas"]) == 2


async def test_what_the_viewer_may_not_see_is_said(database_url: str) -> None:
    async with guarded(database_url, console="auto") as world:
        body = {"type": "AVRO", "definition": AVRO}
        await world.ok("POST", f"{world.project}/schemas?schemaId=row", body)
        permissions = ["pubsub.schemas.get", "pubsub.schemas.commit"]
        role = {"roleId": "committer", "role": {"includedPermissions": permissions}}
        await world.ok("POST", f"{world.project}/roles", role)
        account = await world.account("somebody", role=f"{world.project}/roles/committer")
        await world.client.post("/console/login", data={"credential": json.dumps(await world.key(account))})
        address = f"/console/{world.project}/schemas/row:commit"
        page = await look(world.client, address, typed(WIDER))
        assert "You may not see whether it is compatible" in notes(page.text)
        assert "You may not see which topics have the schema" in notes(page.text)
        assert (await act(world.client, address, typed(WIDER))).status_code == 303
