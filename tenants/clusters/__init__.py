"""How clusters are reached: the client, its credentials at rest, and the objects behind a workspace."""
