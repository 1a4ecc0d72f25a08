"""The settings: `fields` lists them, `kinds` and `checks` limit their values, `find` reads them."""
