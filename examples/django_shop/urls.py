r"""A shop in Django: what goes where, and how to try it.

Shows ``SyncClient`` in a project that keeps orders in its own database, and starts a run when a transaction
has committed. Needs Django and no server: by default everything is in three files. Try it from the root of
the checkout, in three terminals::

    tidewheel dev examples.django_shop.workflows:app

    python -m django migrate --run-syncdb --settings examples.django_shop.settings
    python -m django runserver --settings examples.django_shop.settings

    curl -d item=kettle -d cents=7800 http://127.0.0.1:8000/orders
    curl http://127.0.0.1:8000/orders/1
    curl -d approved=yes http://127.0.0.1:8000/orders/1/approval

With ``TIDEWHEEL_STORE`` and ``TIDEWHEEL_BROKER`` set, both use your Postgres and your RabbitMQ instead.
"""

from __future__ import annotations

from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from examples.django_shop import views

urlpatterns = [
    path("orders", require_POST(views.place)),
    path("orders/<int:order_id>", require_GET(views.show)),
    path("orders/<int:order_id>/approval", require_POST(views.approve)),
]
