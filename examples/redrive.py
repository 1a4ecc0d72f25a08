"""Dead letters come back to the subscription that gave them up, once it is repaired.

python examples/redrive.py
"""

import time

from plain_http import Broker

PROJECT = "projects/example-redrive"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
DEAD = f"{PROJECT}/topics/dead"

with Broker(SUB, TOPIC, DEAD) as broker:
    for topic in (TOPIC, DEAD):
        broker.call("PUT", topic, {})
    policy = {"deadLetterTopic": DEAD, "maxDeliveryAttempts": 5}
    broker.call("PUT", SUB, {"topic": TOPIC, "deadLetterPolicy": policy})
    broker.publish(TOPIC, "order 1")
    while not (got := broker.call("POST", f"{SUB}:pull", {"maxMessages": 1}).get("receivedMessages")):
        pass
    broker.call("POST", f"{SUB}:reject", {"ackIds": [got[0]["ackId"]]})  # no other attempt would help
    while not (letters := broker.call("GET", f"{SUB}/deadLetters").get("deadLetters")):
        time.sleep(0.2)
    print(f"{len(letters)} dead letter, because of {letters[0]['reason']}")

    operation = broker.call("POST", f"{SUB}:redrive", {})
    done = broker.call("POST", f"{operation['name']}:wait", {})
    print("redriven:", done["metadata"]["counts"])
    while not (came := broker.pull(SUB)):
        pass
    print("got", came)
    broker.call("DELETE", operation["name"])
