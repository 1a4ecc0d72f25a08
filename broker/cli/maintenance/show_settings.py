"""`broker settings`: shows the settings in force, and where each comes from."""

from broker.app.settings.find import SettingsInForce
from broker.cli.server.announcements import say


def show_settings(in_force: SettingsInForce) -> int:
    """Returns the exit code.  No password is printed."""
    rows = [(name, value or "-", origin) for name, value, origin in in_force.all_shown]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        say(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}")
    return 0
