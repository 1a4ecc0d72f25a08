"""Settings of a project that its users share: masking rules, saved views, message templates and link templates."""
