"""The roles that Kubernetes' own components and controllers are given from the start (``bootstrappolicy``)."""
