"""Keys change places while everything serves: what is announced is known everywhere before it is used."""
