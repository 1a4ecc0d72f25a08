-- The entries up to a number go, those that newer ones have pushed out.
-- parameters: schedule text, number int8
DELETE FROM schedule_ticks
WHERE schedule = %(schedule)s AND number <= %(number)s
