"""What ``tidewheel run`` does: starting runs, looking at them, talking to them."""
