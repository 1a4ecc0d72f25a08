"""`broker backup restored`: what a database needs before brokers serve from it, once it is as it was before."""

from broker.cli.announcements import say
from broker.cli.bootstrap import used_database
from broker.cli.stop import Stop
from broker.setting_fields import Settings
from broker.store.schema.after_restore import IdsUsedUp, go_on_after_restore
from broker.store.schema.migration_waits import MigrationUnderWay
from broker.store.schema.schema_move import BrokersAtWork
from broker.store.schema.schema_state import DatabaseUnreachable
from broker.telemetry.log import set_up_log


def restored(settings: Settings) -> int:
    """Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level, settings.log_format)
    with used_database(settings) as (url, schema):
        try:
            gap = go_on_after_restore(url, schema=schema)
        except (BrokersAtWork, IdsUsedUp, DatabaseUnreachable) as error:
            raise Stop(str(error)) from error
        except MigrationUnderWay as error:
            raise Stop("a migration is under way; try again when it is done") from error
    shards = "1 shard leaves" if gap.shards == 1 else f"{gap.shards:,} shards leave"
    say(f"{shards} out {gap.sequences:,} ids, which may have been given out before: none comes twice.")
    return 0
