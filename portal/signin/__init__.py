"""How people come in: passwords, OpenID Connect, and the accounts behind them."""
