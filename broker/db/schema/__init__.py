"""The tables of the broker: definitions, migrations, checks of a database."""
