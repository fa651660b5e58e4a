"""How the console writes dates and times: unambiguous, with the zone."""
