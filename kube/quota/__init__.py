"""How much: quantities, what an object uses, and the quotas and limit ranges that bound it."""
