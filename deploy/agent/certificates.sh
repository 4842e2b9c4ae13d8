#!/bin/sh
# Creates the files of the Secret eno-metrics-tls in the current folder: tls.key and tls.crt for all agents. For
# Prometheus it creates scraper.key and scraper.crt. They are valid for ten years and signed by metrics-ca.key and
# metrics-ca.crt, which are created if they are missing. The authority is separate: others permit no scraping.
set -eu
umask 077
new="openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650"
[ -e metrics-ca.key ] || $new -subj "/CN=ENO metrics authority" -keyout metrics-ca.key -out metrics-ca.crt \
  -addext "keyUsage=critical,keyCertSign,cRLSign"
signed() { # NAME USAGE FILE
  $new -subj "/CN=$1" -keyout "$3.key" -out "$3.crt" -CA metrics-ca.crt -CAkey metrics-ca.key \
    -addext "basicConstraints=critical,CA:FALSE" -addext "keyUsage=critical,digitalSignature" \
    -addext "extendedKeyUsage=$2" -addext "subjectAltName=DNS:$1"
}
signed eno-agent serverAuth tls
signed eno-scraper clientAuth scraper
