"""What becomes of an object: decoding, defaults, patches, field owners, and how it is shown."""
