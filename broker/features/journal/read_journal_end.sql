-- Returns the last number that was given to a row of the journal, of any subscription.  The row may not be
-- committed yet.
-- columns: number
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS number FROM delivery_journal_number_seq
