"""What the REST API takes and gives: ``…Request`` for bodies, ``…Serializer`` for responses, by subject."""
