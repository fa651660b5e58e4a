"""One handler per kind of answer; each takes an authorised request and returns a response."""
