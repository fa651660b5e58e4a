"""The REST API for automation under ``/api/v1/``: translators around the services, errors as RFC 9457."""
