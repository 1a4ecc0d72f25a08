-- From when on each dead letter is recorded.
-- columns: since
SELECT since FROM letters_recorded
