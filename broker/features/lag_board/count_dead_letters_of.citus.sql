-- Counts as count_dead_letters_of.sql does, for dead letters that are distributed; each node counts its own.
-- parameters: subscription_ids int8[], max_counted int8
-- columns: subscription_id, count
SELECT subscription_id, least(count(*), %(max_counted)s)::int8 AS count
FROM dead_letters
WHERE subscription_id = ANY (%(subscription_ids)s::int8[]) AND resolution IS NULL
GROUP BY subscription_id
