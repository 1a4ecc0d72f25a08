-- Raises an error if the outbox has too many rows or bytes. Rows are counted, for each project, from the number up
-- to which a broker last took all rows that it saw. The size is only measured for a large row, because measuring it
-- reads the table's files.
CREATE OR REPLACE FUNCTION check_outbox_bounds(up_to bigint, added integer, of_project text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF up_to - coalesce((
           SELECT CASE WHEN of_project = ANY(behind) THEN least(behind_to, relayed_to) ELSE relayed_to END
           FROM outbox_progress
       ), 0) > 250000
       OR added > 65536 AND pg_table_size('outbox') > 16000000000
    THEN
        RAISE EXCEPTION USING ERRCODE = 'configuration_limit_exceeded',
            MESSAGE = 'Too much is staged that no broker has taken.',
            HINT = 'A broker must run on these tables. One transaction stages 250,000 messages at most.';
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION check_outbox_bounds FROM PUBLIC;
