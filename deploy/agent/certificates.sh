#!/bin/sh
# Makes, in the current folder, what the Secret eno-metrics-tls needs: tls.key and tls.crt for all agents, and
# scraper.key and scraper.crt for Prometheus, for ten years, signed by metrics-ca.key and metrics-ca.crt, which are made
# unless they are there. An authority of its own: who is let in by another one may not scrape.
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
