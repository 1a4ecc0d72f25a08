"""The action that sets a limit of a project."""

from collections.abc import Mapping, Sequence

from broker.client.stop import Misuse
from broker.console.actions.action import CURRENT, Action, Call, Change, Field, Json, Note, Receipt, Target, Values
from broker.console.actions.common import PROJECT, command, in_project
from broker.console.formats import number
from broker.console.page import Block
from broker.console.rates import LAST_HOUR, Rate, amount, rates_of, refused_requests
from broker.model.quota_names import QUOTAS, RATES

_NONE, _DEFAULT = "none", "default"
_MOST_DIGITS = 16  # of a limit


def _quota(given: str, label: str) -> str:
    if given not in QUOTAS:
        raise Misuse(f"{label} must be one of {', '.join(QUOTAS)}, not {given!r}")
    return given


def _limit(given: str, label: str) -> str:
    if given in (_NONE, _DEFAULT):
        return given
    if not (given.isascii() and given.isdigit() and len(given) <= _MOST_DIGITS):
        raise Misuse(
            f"{label} must be a whole number of at most {_MOST_DIGITS} digits, {_NONE} or {_DEFAULT}, not {given!r}"
        )
    return str(int(given))


def _field(values: Values) -> str:
    return "principalLimits" if values.get("principals") else "limits"


def _set(target: Target, values: Values) -> Call:
    limit = {_NONE: -1, _DEFAULT: None}.get(values["limit"], values["limit"])
    body: Json = {_field(values): {values["quota"]: int(limit) if isinstance(limit, str) else limit}}
    return Call("PATCH", f"{target.name}/quotas", body | {"etag": values[CURRENT]["etag"]})


def _before(quotas: Json, values: Values) -> str:
    """Return the limit that is set for the project, as the form takes it."""
    limit = quotas[_field(values)].get(values["quota"])
    return _DEFAULT if limit is None else _NONE if limit < 0 else str(limit)


def _in_words(limit: str, unit: str) -> str:
    if limit in (_NONE, _DEFAULT):
        return "no limit" if limit == _NONE else "the broker's default"
    return f"at most {amount(int(limit), unit)}"


def _changes(quotas: Json, values: Values) -> Sequence[Change]:
    before, after = _before(quotas, values), values["limit"]
    if before == after:
        return []
    whose = " of each principal" if values.get("principals") else ""
    unit = _of(quotas, values["quota"])["unit"]
    name = f"{values['quota']}{whose}"
    return [
        Change("-", f"{name}: {_in_words(before, unit)}"),
        Change("+", f"{name}: {_in_words(after, unit)}"),
    ]


def _of(quotas: Json, quota: str) -> Json:
    found: Json = next(one for one in quotas["quotas"] if one["quota"] == quota)
    return found


def _notes(values: Values, answers: Mapping[str, Block]) -> Sequence[Note]:
    """Return what is used now and was used in the last hour, and what the new limit would have refused of that."""
    quotas, quota, limit = values[CURRENT], values["quota"], values["limit"]
    now = _of(quotas, quota)
    history = answers["history"]
    rates = {} if values.get("principals") else rates_of(history)
    notes = [Note(text) for text in (_used(quotas, now, values), _highest(now, rates.get(quota))) if text]
    if limit.isdigit():
        refused = _of_last_hour(now, int(limit), rates[quota]) if quota in rates else _of_now(now, int(limit))
        notes += [Note(refused)] if refused and not values.get("principals") else []
    if count := refused_requests(history):
        requests = "1 publish request was" if count == 1 else f"{number(count)} publish requests were"
        notes.append(
            Note(f"{requests} refused in the last hour because a quota was used up; they are not in this.")
        )
    return notes


def _used(quotas: Json, now: Json, values: Values) -> str:
    """Say how much is used at the moment, where the API measures it."""
    unit = now["unit"]
    if values.get("principals"):
        of_each = [one for one in quotas["principalQuotas"] if one["quota"] == now["quota"]]
        most = max(of_each, key=lambda one: float(one["usage"]), default=None)
        return f"{most['principal']} uses most now: {amount(most['usage'], unit)}." if most else ""
    if "limit" not in now and unit != now["quota"]:
        return ""
    of = f" of {amount(now['limit'], unit)}" if "limit" in now else ""
    return f"Used now: {amount(now['usage'], unit)}{of}."


def _highest(now: Json, found: Rate | None) -> str:
    if found is None:
        return ""
    if not found.highest_at:
        return "Nothing was published in the last hour."
    highest = amount(found.highest, now["unit"])
    return f"The busiest ten seconds of the last hour, until {found.highest_at}, had {highest}."


def _of_last_hour(now: Json, limit: int, found: Rate) -> str:
    above = found.excess(limit)
    if not above.periods:
        return "Nothing that was published in the last hour was above the new limit." if found.highest_at else ""
    unit = now["unit"].removesuffix(" a second")
    periods = "1 period" if above.periods == 1 else f"{number(above.periods)} periods"
    return (
        f"About {amount(round(above.amount), unit)} of the {amount(round(above.all_), unit)} of the last hour were "
        f"above the new limit, in {periods} of ten seconds, and would have been refused."
    )


def _of_now(now: Json, limit: int) -> str:
    """Say what a limit of a count or an amount refuses at once."""
    if now["quota"] in RATES or now["usage"] < limit or ("limit" not in now and now["unit"] != now["quota"]):
        return ""
    if now["quota"] == "retainedBytes":
        return "As much is retained already, so publishes are refused from now on."
    return f"There are as many {now['quota']} already: what is there stays, and new ones are refused."


def _receipt(target: Target, values: Values, _: Json) -> Receipt:
    quota, limit = values["quota"], values["limit"]
    whose = f"each principal in {target.id}" if values.get("principals") else target.id
    said = {_NONE: "no limit", _DEFAULT: "the broker's default"}.get(limit, limit)
    fields = f"quota={quota}&limit={_before(values[CURRENT], values)}"
    undo = f"{target.name}:setQuota?{fields}{'&principals=on' if values.get('principals') else ''}"
    return Receipt(f"Set {quota} of {whose} to {said}.", f"{target.name}/quotas", undo=undo)


ACTIONS: Sequence[Action] = [
    Action(
        on=PROJECT,
        verb="setQuota",
        rpc="Quotas.UpdateQuotas",
        permission="serviceusage.quotas.update",
        needed_on=lambda _: "",  # above projects: quotas restrict also those who own one
        title="Change a limit",
        label="Change the limit",
        help="A limit of a rate is that of a second; what is above it is refused, and has to be sent again.",
        shown_on=("/quotas",),
        fields=[
            Field(
                name="quota",
                label="Quota",
                kind="choice",
                choices=[(one, one) for one in QUOTAS],
                required=True,
                read=_quota,
            ),
            Field(
                name="limit",
                label="Limit",
                required=True,
                read=_limit,
                placeholder="600",
                help="A whole number, none for no limit, or default for that of the broker.",
            ),
            Field(name="principals", label="Of each principal in the project, not of all together", kind="check"),
        ],
        reads=lambda target, _: Call("GET", f"{target.name}/quotas"),
        changes=_changes,
        asks=lambda target, _: {"history": Call("GET", f"{target.name}/timeSeries", query=LAST_HOUR)},
        notes=_notes,
        call=_set,
        receipt=_receipt,
        command=command("quota set {quota}={limit}", principals="principals"),
        page=in_project("quotas"),
    ),
]
