#!/bin/sh
# Makes, in the current folder, what the Secrets eno-nats-tls need: tls.key and tls.crt for NATS, for ten years, signed by
# ca.key and ca.crt, which are made unless they are there. Keep ca.key: who has it can pass for NATS.
set -eu
umask 077
new="openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650"
[ -e ca.key ] || $new -subj "/CN=ENO NATS authority" -keyout ca.key -out ca.crt \
  -addext "keyUsage=critical,keyCertSign,cRLSign"
# By the names of the Service, of the single servers, and of a port-forward.
$new -subj "/CN=eno-nats" -keyout tls.key -out tls.crt -CA ca.crt -CAkey ca.key \
  -addext "basicConstraints=critical,CA:FALSE" -addext "keyUsage=critical,digitalSignature" \
  -addext "extendedKeyUsage=serverAuth,clientAuth" \
  -addext "subjectAltName=DNS:eno-nats,DNS:eno-nats.eno-system.svc,DNS:*.eno-nats,DNS:localhost"
