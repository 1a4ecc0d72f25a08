"""A subscription gets another filter: for messages published from then on, and not for earlier ones.

python examples/change_filter.py
"""

from plain_http import Broker

PROJECT = "projects/example-change-filter"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {})
    broker.call("PUT", SUB, {"topic": TOPIC, "filter": 'attributes.country = "de"'})
    broker.publish(TOPIC, "order 1", country="de")
    broker.publish(TOPIC, "order 2", country="fr")

    wanted = 'attributes.country = "fr"'
    preview = broker.call("POST", f"{SUB}:setFilter", {"filter": wanted, "validateOnly": True})["preview"]
    scanned, more = preview["scannedMessageCount"], preview["newlyMatchedMessageCount"]
    print(f"of {scanned} messages it would match {more} others")
    changed = broker.call("POST", f"{SUB}:setFilter", {"filter": wanted})
    print(f"changed from {changed['previousFilter']!r}")
    broker.publish(TOPIC, "order 3", country="de")
    broker.publish(TOPIC, "order 4", country="fr")
    print("got", sorted(broker.pull(SUB)))  # order 1 by the old filter, order 4 by the new one
