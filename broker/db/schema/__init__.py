"""The tables of the broker: definitions, migrations, and checks of a database."""
