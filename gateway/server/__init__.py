"""The server as a whole: the stages in order, sockets and processes, and the way in without a socket."""
