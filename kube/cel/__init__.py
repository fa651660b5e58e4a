"""Validation rules of CRDs in the Common Expression Language (``x-kubernetes-validations``)."""
