"""Sign-in by OpenID Connect (GW16): mozilla-django-oidc's code flow on our own verifier."""
