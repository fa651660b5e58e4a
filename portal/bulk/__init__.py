"""One deed for many rows: looked at beforehand by doing it and taking it back, then done one by one (GW28)."""
