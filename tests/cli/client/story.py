"""A story in which every command for a server has its turn, by the examples of its help."""

SETUP = "# "  # begins a line that is no example of a help, and is typed all the same

STORY = """
broker context set local --url http://127.0.0.1:8085 --project demo
broker context list
broker context use local
broker context show
broker context show local
broker context delete local
eval "$(broker completion bash)"
broker docs
broker docs runbooks
broker docs runbooks disk
# broker topic list
broker topic create orders
broker topic create parcels --retention 7d --label team=sales
broker topic list
broker topic list --stats
broker topic list --json
broker topic update orders --retention 1d
broker topic update orders --clear labels
broker sub create billing --topic orders
broker sub create audit --topic orders --filter 'attributes.env="prod"'
# broker sub update billing --set extensions.journal.mode=ALL
broker topic show orders
broker quota show
broker quota set publishMessages=100000 topics=500
broker quota set publishMessages=none --principals
broker quota set publishMessages=default topics=default
# broker topic create events
broker events show
broker events list
broker events mark 'Release 7 of the shop' --label release=7
broker events list --type mark --oldest
broker events list --type pubsub.push.failing --max 20
broker events set events
broker sub list
broker sub list --topic orders --json
broker sub update billing --ack-deadline 30 --max-backoff 5m
broker sub show billing
broker sub update billing --clear retryPolicy
broker sub set-filter audit attributes:env --dry-run
broker sub set-filter audit attributes:env
broker publish orders 'one order' --attribute env=prod
# broker publish orders '{"total": 12}' 'a longer order, which a terminal of eighty columns cannot show as a whole'
broker topic test-filter orders 'attributes.env = "prod"'
broker sub test-filter billing
broker sub test-filter billing 'attributes:env'
broker transform validate upper.js
broker transform validate transforms.yaml
broker transform test 'one order' --file upper.js --attribute env=prod
broker topic browse orders
broker topic browse orders --since 1h --oldest --max 5
broker topic browse orders --contains order --preview 3
broker topic histogram orders --buckets 1
broker topic histogram orders --since 1h --buckets 2
broker peek billing
broker peek billing --state waiting --contains order --preview 3
broker snapshot create before-release --sub billing
broker snapshot list
broker snapshot list --topic orders
broker snapshot update before-release --label release=7
broker snapshot show before-release
broker message show $ID
# broker message show $ID --topic orders
broker message data $ID > order.bin
broker message data $ID --topic orders --range 0-2 > begin.bin
broker transform test --id $ID --topic orders --file upper.js
broker pull billing --max 2
broker sub consumers billing
broker sub position billing
broker sub extend billing $ACK_ID --by 1m
broker sub nack billing $ACK_ID
broker sub nack billing $ACK_ID --delay 30s
broker sub ack billing $ACK_ID
broker lag
broker lag --order-by 'undeliveredMessages desc' --filter 'heldBy!=PAUSED'
broker lag --sampled --max 1000
broker history pubsub_topic_retracted_messages_total topics/orders
broker history pubsub_subscription_num_dead_letter_messages --since 1d
broker message show $ID --sub billing
broker push resend billing $ID
broker seek billing --time 1h --preview
broker seek billing --time 1h --dry-run
broker seek billing --time 1h
broker seek billing --snapshot before-release --undoable
broker seek billing --undo --preview
broker seek billing --undo
broker sub pause billing --reason 'The database is moved.'
# broker pull billing
# broker lag
broker sub resume billing
broker topic freeze orders --reason 'The schema is migrated.'
# broker topic show orders
broker topic unfreeze orders
# broker topic create replay --retention 1d
broker topic copy orders replay --since 1h --dry-run
broker topic copy orders replay --rate 500
# broker topic browse replay --max 1
broker topic export orders --since 1h > orders.jsonl
broker topic import replay --file orders.jsonl
broker topic export orders --format avro --codec deflate > orders.avro
broker topic import replay --file orders.avro
# broker op delete $OP
# broker topic delete replay
broker top --every 200ms --max 2
broker search orders
broker search team=sales --max 20
# broker sub create hook --topic parcels --push-endpoint $SINK
broker push set-endpoint hook $SINK
broker push test hook 'Is anybody there?'
broker push status hook
broker push failures hook
broker push attempts hook
broker push attempts hook --outcome failed --since 1h
broker push pause hook --reason 'The receiver moves.'
# broker push status hook
broker push resume hook
broker push recover hook --since 1h --dry-run
broker push recover hook --since 1h
# broker op delete $OP
broker push replay-missing hook --since 1h --dry-run
broker push replay-missing hook --since 1h --rate 500
# broker op delete $OP
# broker sub delete hook
# broker topic create failed
# broker sub create mortuary --topic failed
# broker sub create fragile --topic parcels --dead-letter-topic failed
# broker publish parcels 'a parcel of glass' 'a parcel of eggs' --attribute env=prod
# broker publish parcels 'a parcel of china'
broker pull fragile --reject
broker dlq summary fragile
broker dlq summary fragile --by attribute:env
broker dlq summary
broker dlq summary --by sourceSubscription,reason --order "newestTime desc"
broker dlq list fragile
broker dlq list fragile --reason reject --max 5 --preview 8
broker dlq list --filter "sourceSubscription : fragile"
broker dlq show fragile $LETTER
broker dlq discard fragile --id $LETTER --dry-run
broker dlq discard fragile --id $LETTER --yes
broker dlq discard fragile --reason "push 410" --yes
broker dlq edit fragile $LETTER --attribute env=test --data 'of stones'
broker dlq redrive fragile --dry-run
broker dlq redrive fragile --target parcels --dry-run
broker dlq redrive fragile --reason reject --rate 500
broker sub reject fragile $ACK_ID
broker sub release fragile $ID
broker sub dead-letter fragile $ID
broker fleet processes
broker fleet database
broker fleet findings
broker fleet settings
broker op list
broker op list --newest --state SUCCEEDED --verb redrive --max 5
broker op show $OP
broker op wait $OP
broker op cancel $OP
broker op delete $OP
# broker sub delete fragile
# broker sub delete mortuary
# broker topic delete failed
# broker topic create reminders --set extensions.delay=true
broker publish reminders 'Call them back.' --delay 1h
broker scheduled list reminders
broker scheduled show reminders $WAITING
# broker message show $WAITING
broker message replace reminders $WAITING 'Write to them.' --delay 1h
broker message retract reminders $WAITING --dry-run
broker message retract reminders $WAITING --yes
# broker publish reminders 'Call them back.' --delay 1h
broker scheduled move reminders $WAITING --delay 2h
broker scheduled cancel reminders $WAITING
# broker scheduled list reminders
# broker topic delete reminders
# broker topic create prices --set extensions.expiry=true
broker publish prices 12.40 --ttl 30s
# broker topic delete prices
# broker topic create payments --set 'extensions.deduplication.window="600s"'
# broker publish payments paid --attribute broker-dedup-id=1
# broker publish payments paid --attribute broker-dedup-id=1
# broker publish payments paid refunded --attribute broker-dedup-id=1
# broker topic delete payments
broker schema validate --file order.avsc
broker schema create order --file order.avsc
broker schema list
broker schema check order '{"id": "1"}'
broker schema check --file order.avsc '{"id": "1"}'
# broker topic create coded --retention 10m --set schemaSettings.schema=$SCHEMA --set schemaSettings.encoding=JSON
# broker publish coded '{"id": "1"}'
broker message decode $ENCODED --topic coded
# broker topic delete coded
broker schema commit order --file next.avsc
broker schema revisions order
broker schema show order
broker schema show order@$REVISION
broker schema rollback order $REVISION
broker schema delete-revision order $REVISION
broker schema delete order --dry-run
broker schema delete order
broker topic create alarms --priorities 3 --priority-age 60s
broker publish alarms 'The cellar is wet.' --priority 0
# broker topic show alarms
broker topic update alarms --priority-weights 8,3,1
# broker topic show alarms
# broker topic update alarms --priorities 3
# broker topic show alarms
# broker topic delete alarms
# broker topic create jobs
broker schedule create nightly 'Close up.' --topic jobs --cron '30 2 * * *'
broker schedule create beat '{{tick}}' --topic jobs --every 90s --template
# broker schedule create nightly 'Close.' --topic jobs --cron '30 2 * * *' --time-zone Europe/Berlin
broker schedule list
broker topic publishers jobs
broker schedule show nightly
broker schedule next nightly --max 3
broker schedule run nightly
broker schedule history nightly
broker schedule pause nightly
broker schedule resume nightly
broker schedule create nightly --topic jobs --cron '45 2 * * *'
broker schedule delete nightly
# broker schedule delete beat
broker mask create cards --topic 'payments*' --field '$.card'
broker mask list
broker mask update cards --field '$.card' --field '$..pin'
broker mask show cards
broker mask delete cards --dry-run
broker mask delete cards
broker view create late --page subscriptions --query filter=oldestAge>1h
broker view list
broker view update late --title 'What is late'
broker view show late
broker view delete late --dry-run
broker view delete late
broker template create sale --topic orders --data '{}' --attribute shop=eu
broker template list
broker template update sale --data '{}'
broker template show sale
broker template delete sale --dry-run
broker template delete sale
broker link create traces --title Trace --to 'https://t.example/{traceId}'
broker link list
broker link update traces --topic 'orders*'
broker link show traces
broker link delete traces --dry-run
broker link delete traces
# broker topic delete jobs
broker doctor
broker bench --messages 200 --batch 20 --connections 2
broker snapshot delete before-release
broker sub detach audit --dry-run
broker sub detach audit
broker sub delete audit --dry-run
broker sub delete audit
broker topic delete orders --dry-run
broker topic delete parcels --expected-count 4
broker peek billing --json | broker publish orders --input json
seq 3 | broker publish orders --rate 100
broker pull billing --ack
broker export > shop.yaml
broker apply --file shop.yaml --dry-run
# broker export
# broker apply --file next.yaml --dry-run
broker apply --file shop.yaml
# broker apply --file next.yaml
# broker apply --file least.yaml --prune --dry-run
broker apply --file shop.yaml --prune --yes
broker apply --schema
broker purge --topic orders --dry-run
broker purge billing --filter 'attributes.env = "test"' --dry-run
broker purge billing --filter 'attributes.env = "test"' --yes
broker purge billing --before 1h --undoable --yes
broker purge billing --expected-count 7 --tolerance-percent 1 --yes
broker purge --topic orders --yes
broker topic update orders --shards 4
# broker topic create scraps --project scratch
broker reset --project scratch --dry-run
broker reset --project scratch --yes
broker tail --sub billing --since 10m --max 1
broker tail orders --max 1
broker tail orders --since 1h --preview 3 --max 1
broker events tail --max 1
broker events off
broker projects list
broker projects list --json
# broker whoami
broker completion fish
broker help
broker help sub ack
broker help times
"""

# Beside a broker that asks who calls; the administrator's key is in admin.json.
AUTH_STORY = """
broker auth token --credentials admin.json
broker whoami
broker auth accounts create billing --display-name Billing
broker auth accounts list
broker auth accounts show billing
broker auth accounts disable billing
# broker auth accounts list
broker auth accounts enable $EMAIL
broker auth keys create billing --output billing.json
broker auth keys list $EMAIL
broker auth keys show billing $KEY
broker auth keys delete $EMAIL $KEY
# broker topic create orders
broker auth policy add topics/orders --role publisher --member billing
# broker auth policy get topics/orders
broker auth policy test topics/orders pubsub.topics.publish
broker auth policy test topics/orders pubsub.topics.get --also topics/other
broker auth policy explain topics/orders pubsub.topics.get --member billing
# broker auth policy explain topics/orders pubsub.topics.publish --member billing
broker auth policy remove topics/orders --role publisher --member billing
# broker auth policy add projects/demo --role roles/viewer --member $MEMBER
broker auth policy get projects/demo
broker auth roles list
broker auth roles permissions --contains snapshots
broker auth roles create auditor --permission pubsub.topics.get
broker auth roles update auditor --add-permission pubsub.subscriptions.get
broker auth roles list --custom
broker auth roles show auditor
broker auth roles show roles/pubsub.publisher
# broker auth policy add projects/demo --role auditor --member billing
broker auth roles update auditor --remove-permission pubsub.topics.get
broker auth roles delete auditor
broker auth roles undelete auditor
broker auth api-keys create --role subscriber --resource topics/orders
broker auth api-keys list
broker auth api-keys show $API_KEY
broker auth api-keys delete $API_KEY
# broker sub create hook --topic orders --push-endpoint https://hooks.example.com/hook
broker share create hook --ttl 7d
broker share list hook
broker share delete hook $LINK
broker share create hook --permit resend --permit recover
broker console --no-open
broker auth accounts delete $EMAIL
# broker projects list
broker audit --since 1h --method IAM.CreateServiceAccount
broker audit --resource 'projects/demo/topics/*' --max 1
# broker auth accounts list
"""

# These wait for what is published there.
TAKEN_UP = {"broker tail orders --max": "orders", "broker events tail": "events"}


FILES = {
    "next.yaml": """
topics:
  orders: {messageRetentionDuration: 7d}
  letters:
subscriptions:
  billing:
    topic: orders
    ackDeadlineSeconds: 20
    deadLetterPolicy: {deadLetterTopic: letters}
  letters: {topic: letters}
""",
    "least.yaml": "topics: {letters: {}}",
    "order.avsc": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}',
    "next.avsc": """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "string"}, {"name": "note", "type": "string", "default": ""}]}
""",
    "upper.js": "function upper(message, metadata) { message.data = message.data.toUpperCase(); return message; }",
    "transforms.yaml": """
messageTransforms:
- javascriptUdf: {functionName: keep, code: "function keep(message, metadata) { return message; }"}
""",
}


def lines(story: str = STORY + AUTH_STORY) -> list[tuple[str, bool]]:
    """What is typed, and whether it is an example of a help."""
    typed = [line for line in story.splitlines() if line]
    return [(line.removeprefix(SETUP), not line.startswith(SETUP)) for line in typed]
