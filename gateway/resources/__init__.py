"""What requests are about: the kinds that a space serves, and objects between body and store."""
