"""What speaks to clusters on the way of a request: connections, what may pass in either direction, tunnels."""
