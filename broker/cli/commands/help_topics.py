"""The help topics of `broker help TOPIC`, which explain what all commands have in common."""

from collections.abc import Mapping

TOPICS: Mapping[str, str] = {
    "connection": """
Which server a command calls, in which project, and as whom. Each is the first
that is given of: the option, the environment variable, the context, the key
file, the default.

  --url URL           BROKER_URL           http://127.0.0.1:8085
  --project PROJECT   BROKER_PROJECT       the project of short names
  --credentials FILE  BROKER_CREDENTIALS   GOOGLE_APPLICATION_CREDENTIALS
  --ca-file FILE                           the machine's authorities
  --context NAME      BROKER_CONTEXT       the one in use

`broker context set NAME` keeps these under a name; `broker context use NAME`
makes it the one in use; `broker context show` says what is in use.
""",
    "times": """
Times are printed in UTC, with a Z at their end. An argument that is a time
takes one of:

  2026-11-23T10:00:00Z       UTC
  2026-11-23T10:00:00+01:00  another zone
  2026-11-23T10:00:00        local time of this machine, with a warning
  30m                        30 minutes ago, of options such as --since
  now                        now, of the same options

Durations are 90s, 10m, 12h, 7d, 1h30m or 250ms; a number alone is seconds.
""",
    "output": """
On a terminal commands print tables that are cut to its width, with colours
unless NO_COLOR is set; elsewhere they print plain text of any width. --json
prints the answer of the API instead: one document, or of `publish` and `tail`
a document in each line. Errors, warnings and notes are on standard error.
""",
    "exit-codes": """
  0    done
  1    the server refused, or the command failed
  2    the command line is wrong; nothing was tried
  3    there is no such topic, subscription, message or other resource
  4    the server was not reached, or is overloaded: try again
  5    not allowed: no credentials, or not these
  130  Ctrl-C
""",
    "names": """
Resources are named by an id in the project (orders) or by their whole name
(projects/shop/topics/orders). Commands of `broker auth` also take:

  accounts   billing                  billing@PROJECT.iam.broker.internal
  members    billing                  serviceAccount:billing@PROJECT.iam…
             user:ann@example.com     as it is; also group:, allUsers
  roles      publisher                roles/pubsub.publisher
             auditor                  projects/PROJECT/roles/auditor
  resources  topics/orders            projects/PROJECT/topics/orders
             projects/shop            a project
""",
}
