# cfglint in an image: docker run --rm -v "$PWD:/work:ro" cfglint
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY lint lint
COPY rules rules
COPY schemas schemas
COPY fixtures/cases fixtures/cases
COPY .github/requirements.txt requirements.txt
# Everything but cfglint itself is installed by its hash, as the action does; nothing of it is built.
RUN python -m venv /cfglint \
 && /cfglint/bin/python -m pip install --no-cache-dir --quiet --require-hashes --only-binary :all: -r requirements.txt \
 && /cfglint/bin/python -m pip install --no-cache-dir --quiet --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /cfglint /cfglint
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin cfglint
USER 10001:10001
# No cache: the image is read-only to its user.
ENV PATH="/cfglint/bin:$PATH" CFGLINT_CACHE_DIR=""
WORKDIR /work
ENTRYPOINT ["cfglint"]
