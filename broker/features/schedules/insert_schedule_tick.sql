-- Inserts an entry into the history of a schedule.
-- parameters: schedule text, number int8, planned_at timestamptz, by_hand bool, ran_at timestamptz, outcome text,
--     reason text, message_id text
INSERT INTO schedule_ticks (schedule, number, planned_at, ran_at, outcome, reason, message_id)
VALUES (%(schedule)s, %(number)s, CASE WHEN NOT %(by_hand)s THEN %(planned_at)s END, %(ran_at)s, %(outcome)s,
        %(reason)s, %(message_id)s)
