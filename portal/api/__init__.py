"""The REST API for automation (contract.md, portal URLs): translators around the services, errors as RFC 9457."""
