"""Kinds that users define: CustomResourceDefinitions, their schemas and their objects."""
