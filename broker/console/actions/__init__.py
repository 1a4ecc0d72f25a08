"""The actions of the console: a form each, with a preview where the API has one, and a receipt."""
