# A Java runtime for the servers below.
FROM debian:bookworm-slim
RUN apt-get update -q && apt-get install -y -q --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
