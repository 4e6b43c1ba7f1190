#!/usr/bin/env bash
# Installs weir, which was built, below PREFIX (/usr/local): the program without its symbols, manual pages, completions, a
# unit of systemd, alerts and a dashboard.
# DESTDIR is put before PREFIX, as packagers need.
set -euo pipefail
# What is installed is for everybody.
umask 022
cd "$(dirname "$0")/.."
# WEIR_BUILT names another program than that of `make build`.
weir="${WEIR_BUILT:-${CARGO_TARGET_DIR:-target}/release/weir}"
[ -x "$weir" ] || { echo "error: there is no '$weir' to install; run:  make build" >&2; exit 1; }
to="${DESTDIR:-}${PREFIX:-/usr/local}"
install -D -s -m 755 "$weir" "$to/bin/weir"
install -d "$to/share/man/man1"
"$weir" man "$to/share/man/man1"
completions() { install -D -m 644 <("$weir" completions "$1") "$to/share/$2"; }
completions bash bash-completion/completions/weir
completions zsh zsh/site-functions/_weir
completions fish fish/vendor_completions.d/weir.fish
# Units of systemd, its user and its folders, for whoever wants weir to run as a service.
lib="${DESTDIR:-}${PREFIX:-/usr/local}/lib"
install -D -m 644 <(sed "s|@PREFIX@|${PREFIX:-/usr/local}|" packaging/systemd/weir.service) "$lib/systemd/system/weir.service"
install -D -m 644 packaging/systemd/weir-sysusers.conf "$lib/sysusers.d/weir.conf"
install -D -m 644 packaging/systemd/weir-tmpfiles.conf "$lib/tmpfiles.d/weir.conf"
# Files for Prometheus and Grafana.
install -D -m 644 packaging/prometheus/weir.rules.yml "$to/share/weir/prometheus/weir.rules.yml"
install -D -m 644 packaging/grafana/weir.json "$to/share/weir/grafana/weir.json"
echo "installed $to/bin/weir ($(du -h "$to/bin/weir" | cut -f1)), its manual pages, completions of bash, zsh and fish, and a unit of systemd"
