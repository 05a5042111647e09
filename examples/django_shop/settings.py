"""The least that Django needs to know: where orders are kept, and where requests go."""

from __future__ import annotations

import os

SECRET_KEY = os.environ.get("SHOP_SECRET", "only for trying it out")
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
INSTALLED_APPS = ["examples.django_shop"]
ROOT_URLCONF = "examples.django_shop.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", "shop.db"),
        "ATOMIC_REQUESTS": True,  # a view is one transaction: see views.py for what that means for runs
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
