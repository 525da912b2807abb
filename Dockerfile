FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[postgresql]'

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'weaklink[postgresql]' \
    && rm -rf /wheels && useradd --system --create-home weaklink
USER weaklink
WORKDIR /home/weaklink
RUN mkdir data
EXPOSE 8080
ENTRYPOINT ["weaklink"]
CMD ["serve"]
