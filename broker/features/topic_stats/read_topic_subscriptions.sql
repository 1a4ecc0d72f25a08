-- Returns, for each topic that has subscriptions, their number, and of those of the project itself the one whose
-- state comes first in `states`; of several, the one with the oldest message.  The samples are those of the lag board.
-- LIMIT 1 keeps the planner from joining all subscriptions to find the names.
-- parameters: topic_ids int8[], project_prefix text, states text[], not_sampled text
-- columns: topic_id, subscriptions, worst_name, worst_state, worst_verdict
SELECT t.topic_id, t.subscriptions, w.name::text AS worst_name,
       CASE WHEN w.name IS NOT NULL THEN coalesce(l.state, %(not_sampled)s) END AS worst_state,
       l.details ->> 'verdict' AS worst_verdict
FROM (
    SELECT s.topic_id, count(*) AS subscriptions,
           (array_agg(
               s.subscription_id
               ORDER BY array_position(%(states)s::text[], coalesce(m.state, %(not_sampled)s)),
                   m.oldest_unacked_at NULLS LAST, s.name
           ) FILTER (WHERE starts_with(s.name, %(project_prefix)s)))[1] AS worst_id
    FROM subscriptions AS s
    LEFT JOIN lag_samples AS m ON m.subscription_id = s.subscription_id
    WHERE s.topic_id = ANY (%(topic_ids)s::int8[]) AND NOT s.detached
    GROUP BY s.topic_id
) AS t
LEFT JOIN LATERAL (SELECT name FROM subscriptions WHERE subscription_id = t.worst_id LIMIT 1) AS w ON true
LEFT JOIN lag_samples AS l ON l.subscription_id = t.worst_id
