"""What requests and answers of the portal have in common: errors, who is asking, and through which proxies."""
