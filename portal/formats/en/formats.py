"""Django reads these names (``FORMAT_MODULE_PATH``)."""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s T"
DATETIME_FORMAT = "Y-m-d H:i:s T"
