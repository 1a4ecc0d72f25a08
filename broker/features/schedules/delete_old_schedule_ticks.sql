-- Deletes the entries of a schedule's history up to a number.
-- parameters: schedule text, number int8
DELETE FROM schedule_ticks
WHERE schedule = %(schedule)s AND number <= %(number)s
