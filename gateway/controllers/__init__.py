"""What goes on behind requests: definitions, bindings and workspaces become what their objects say."""
