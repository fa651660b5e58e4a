"""What is in a workspace, asked of the API server as the person who looks."""
