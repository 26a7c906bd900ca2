FROM debian:bookworm-slim
COPY versitygw /usr/bin/versitygw
RUN mkdir /data
ENTRYPOINT ["bash", "-c", "exec versitygw \"$VGW_BACKEND\" \"$VGW_BACKEND_ARG\""]
