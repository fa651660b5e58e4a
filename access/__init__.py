"""Who are you, may you, and is it acceptable: authentication, authorization, admission, and credentials."""
