"""The OpenAPI document of the REST API: how it is made, and the page that shows it."""
