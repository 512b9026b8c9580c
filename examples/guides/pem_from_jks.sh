#!/bin/sh
# Make PEM files from the key stores of a Java client, in the directory PEM (by default "pem").
#
# TRUSTSTORE, TRUSTSTORE_PASSWORD: ssl.truststore.location, ssl.truststore.password.
# KEYSTORE, KEYSTORE_PASSWORD: ssl.keystore.location, ssl.keystore.password; not needed where brokers
# ask for no client certificate. KEY_ALIAS and KEY_PASSWORD: which key it is, if there are several,
# and ssl.key.password, if it is another one than that of the store.
set -eu
umask 077
pem=${PEM:-pem}
mkdir -p "$pem"

# keytool reads JKS and PKCS #12 alike; -rfc is its word for PEM. What it prints between the
# certificates does no harm.
keytool -list -rfc -keystore "$TRUSTSTORE" -storepass:env TRUSTSTORE_PASSWORD > "$pem/ca.pem"

if [ -n "${KEYSTORE:-}" ]; then
    # keytool gives no key away, but it writes PKCS #12, which openssl reads.
    keytool -importkeystore -noprompt \
        -srckeystore "$KEYSTORE" -srcstorepass:env KEYSTORE_PASSWORD \
        ${KEY_ALIAS:+-srcalias "$KEY_ALIAS"} ${KEY_PASSWORD:+-srckeypass:env KEY_PASSWORD} \
        -destkeystore "$pem/client.p12" -deststoretype PKCS12 \
        -deststorepass:env KEYSTORE_PASSWORD -destkeypass:env KEYSTORE_PASSWORD
    openssl pkcs12 -in "$pem/client.p12" -passin env:KEYSTORE_PASSWORD -nokeys -out "$pem/client.pem"
    openssl pkcs12 -in "$pem/client.p12" -passin env:KEYSTORE_PASSWORD -nocerts -nodes \
        -out "$pem/client.key"
    rm "$pem/client.p12"
fi
