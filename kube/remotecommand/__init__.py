"""What connections into pods carry: the channels of exec and attach, over WebSockets and SPDY/3.1."""
