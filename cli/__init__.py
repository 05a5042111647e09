"""The ``tidewheel`` command."""
