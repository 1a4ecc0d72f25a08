#!/bin/sh
# The whole round with nothing but curl: any language that can send HTTP can use the broker.
#
# sh examples/rest_only.sh
set -eu
api=http://${PUBSUB_EMULATOR_HOST:-127.0.0.1:8085}/v1/projects/example-rest

call() { # method path [body]: prints the answer
    curl --silent --show-error --fail-with-body --request "$1" "$api/$2" --data "${3:-}"
    echo
}

for old in subscriptions/worker topics/greetings; do
    call DELETE $old >/dev/null 2>&1 || true # of a run that was stopped halfway; 404 if there is none
done

echo "a topic and a subscription"
call PUT topics/greetings
call PUT subscriptions/worker '{"topic": "projects/example-rest/topics/greetings", "ackDeadlineSeconds": 30}'

echo "publish: data is base64, attributes are text"
data=$(printf 'hello' | base64)
call POST topics/greetings:publish "{\"messages\": [{\"data\": \"$data\", \"attributes\": {\"lang\": \"en\"}}]}"

echo "pull; what is not acknowledged within the ack deadline comes again"
answer=$(call POST subscriptions/worker:pull '{"maxMessages": 10}')
echo "$answer"
ack_id=$(echo "$answer" | sed -n 's/.*"ackId": *"\([^"]*\)".*/\1/p')

echo "more time for the work: 60 seconds from now"
call POST subscriptions/worker:modifyAckDeadline "{\"ackIds\": [\"$ack_id\"], \"ackDeadlineSeconds\": 60}"

echo "acknowledge"
call POST subscriptions/worker:acknowledge "{\"ackIds\": [\"$ack_id\"]}"

echo "nothing is left"
call GET subscriptions/worker/snapshot

call DELETE subscriptions/worker >/dev/null
call DELETE topics/greetings >/dev/null
