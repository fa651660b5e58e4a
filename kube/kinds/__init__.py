"""Which kinds there are: resources, their schemas, and how their lists merge."""
