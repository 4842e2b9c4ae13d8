#!/bin/sh
# Creates the files of the Secrets eno-nats-tls in the current folder: tls.key and tls.crt for NATS, valid for ten years.
# ca.key and ca.crt sign them and are created if they are missing. Keep ca.key secret: its holder can impersonate NATS.
set -eu
umask 077
new="openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650"
[ -e ca.key ] || $new -subj "/CN=ENO NATS authority" -keyout ca.key -out ca.crt \
  -addext "keyUsage=critical,keyCertSign,cRLSign"
# The names are those of the Service, of the single servers, and of a port-forward.
$new -subj "/CN=eno-nats" -keyout tls.key -out tls.crt -CA ca.crt -CAkey ca.key \
  -addext "basicConstraints=critical,CA:FALSE" -addext "keyUsage=critical,digitalSignature" \
  -addext "extendedKeyUsage=serverAuth,clientAuth" \
  -addext "subjectAltName=DNS:eno-nats,DNS:eno-nats.eno-system.svc,DNS:*.eno-nats,DNS:localhost"
