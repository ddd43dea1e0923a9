# Two stages: wheels are built once, the image carries no compiler and runs as an ordinary user.
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/tokenmill \
 && /opt/tokenmill/bin/pip install --no-cache-dir --constraint constraints.txt '.[api,worker,embedded]'

FROM python:3.11-slim
RUN useradd --uid 10001 --home-dir /var/lib/tokenmill --create-home tokenmill
COPY --from=build /opt/tokenmill /opt/tokenmill
ENV PATH=/opt/tokenmill/bin:$PATH ORT_DISABLE_TELEMETRY=1 PYTHONUNBUFFERED=1
USER tokenmill
WORKDIR /var/lib/tokenmill
CMD ["tokenmill", "--help"]
