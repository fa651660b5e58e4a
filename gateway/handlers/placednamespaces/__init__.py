"""Requests that a registered cluster answers, and orders of namespaces there (GW4, GW18)."""
