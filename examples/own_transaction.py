"""An order, its message, and the ack of the message that caused it commit together, or none of them does.

The tables of the application are in the broker's database.  The example starts a broker for that, so run it with an
interpreter that has the broker's package (which brings psycopg), and httpx:

python examples/own_transaction.py
"""

import time

import psycopg
from own_broker import own_broker
from plain_http import Broker

PROJECT = "projects/example-own-transaction"
CARTS, CHECKOUT = f"{PROJECT}/topics/carts", f"{PROJECT}/subscriptions/checkout"
ORDERS, SHIPPING = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/shipping"

with own_broker() as own, Broker(CHECKOUT, CARTS, SHIPPING, ORDERS, url=own.url) as broker:
    for topic, subscription in ((CARTS, CHECKOUT), (ORDERS, SHIPPING)):
        broker.call("PUT", topic, {})
        broker.call("PUT", subscription, {"topic": topic})
    # On a database of your own: `--database-url`, and a role that exists.
    own.run("sql", "grant", "shop_app", "--project", PROJECT.removeprefix("projects/"))
    broker.publish(CARTS, "cart 17")
    [received] = broker.call("POST", f"{CHECKOUT}:pull", {"maxMessages": 1})["receivedMessages"]

    with psycopg.connect(host=f"{own.data_dir}/run", dbname="broker", user="shop_app") as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        connection.commit()

        def place_order(state: str) -> None:
            connection.execute("INSERT INTO orders VALUES (17, %s)", [state])
            connection.execute("SELECT pubsub.publish(%s, %s)", [ORDERS, f"order 17 is {state}".encode()])
            connection.execute("SELECT pubsub.acknowledge(%s, %s)", [CHECKOUT, [received["ackId"]]])

        place_order("refused")
        connection.rollback()
        place_order("paid")
        connection.commit()
        print("rows", connection.execute("SELECT id, state FROM orders").fetchall())

    while not (came := broker.pull(SHIPPING)):
        time.sleep(0.1)
    print("got", came)
    while any(shard["outstandingMessages"] for shard in broker.call("GET", f"{CHECKOUT}/snapshot")["shards"]):
        time.sleep(0.1)
    print("the cart is acknowledged")
