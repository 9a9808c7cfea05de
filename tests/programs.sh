#!/usr/bin/env bash
# Programs that tests drive and pip cannot install: a browser and an MQTT broker.
# Installed where that is possible; else the tests that need them say why they are skipped.
set -u
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ] || missing+=(mosquitto)
[ ${#missing[@]} -eq 0 ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
  echo "installing ${missing[*]} for the browser and broker tests"
  if apt-get update -qq >/dev/null && \
     DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    exit 0
  fi
fi
echo "not installed: ${missing[*]}; on Debian: sudo apt-get install ${missing[*]}. Tests that need them are skipped." >&2
[ "${CI:-}" != true ]  # where every submission is judged, nothing is skipped
