FROM tapedeck-packages/java:17
COPY app /opt/registry
WORKDIR /opt/registry
USER 1001
ENTRYPOINT ["bash", "-c", "exec java -Xmx512m -jar apicurio-registry-app-*-runner.jar"]
