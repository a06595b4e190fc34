# packer with torch for the CPU: docker build -t packer . && docker run --rm -v "$PWD:/data" packer --help
FROM python:3.12-slim
# The compiler builds packer's own decoder; libturbojpeg0 is for decoder="pyturbojpeg".
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libturbojpeg0 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
COPY . /packer
RUN PACKER_COMPILED=1 pip install --no-cache-dir '/packer[remote,parquet]' && rm -r /packer
WORKDIR /data
ENTRYPOINT ["packer"]
