"""What real clients and a real cluster have said to each other over upgraded connections, byte by byte, and its players."""
