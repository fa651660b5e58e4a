"""What Kubernetes means, as pure functions on frozen data: no Django, no I/O, no clock."""
