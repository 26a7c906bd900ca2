# Kafka from its jars, configured by KAFKA_* as the public image is.
FROM tapedeck-packages/java:17
RUN useradd --uid 1000 kafka && mkdir -p /var/lib/kafka/data && chown kafka /var/lib/kafka/data
COPY libs /opt/kafka/libs
COPY kafka-start /usr/bin/kafka-start
USER 1000
VOLUME /var/lib/kafka/data
ENTRYPOINT ["bash", "/usr/bin/kafka-start"]
