"""`broker settings`: shows the settings in force, and where each comes from."""

from broker.app.settings.fields import NAMES
from broker.app.settings.find import SettingsInForce
from broker.cli.server.announcements import say


def show_settings(in_force: SettingsInForce) -> int:
    """Returns the exit code.  No password is printed."""
    rows = [(name, in_force.shown(name) or "-", in_force.origins[name]) for name in NAMES]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        say(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}")
    return 0
